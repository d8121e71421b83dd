"""penstockd by its socket, and calls that block."""

from __future__ import annotations

import asyncio
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from penstock import errors
from penstock.hooks import wire
from penstock.model import descriptions
from penstock.views import sources, threads


async def serve(path: Path, *answer: bytes) -> asyncio.Server:
    """A penstockd that says this to whatever it is asked."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.write(wire.pack(*answer))
        writer.close()

    return await asyncio.start_unix_server(reply, path)


@pytest.mark.parametrize(("more", "hides"), [((b"all",), False), ((), True)])
async def test_an_answer_says_whose_jobs_it_tells_of(
    tmp_path: Path, more: tuple[bytes, ...], hides: bool
) -> None:
    """The asker's, or everybody's."""
    known = msgspec.json.encode([descriptions.JobView(17)])
    async with await serve(tmp_path / "s", b"jobs", known, *more):
        answer = await sources.Socket(lambda: str(tmp_path / "s")).describe([17])
    own = pwd.getpwuid(os.geteuid()).pw_name
    assert (answer.by_job(), answer.hides("somebody"), answer.hides(own)) == (
        {17: descriptions.JobView(17)},
        hides,
        False,
    )


async def test_a_penstockd_that_is_away_is_said(tmp_path: Path) -> None:
    """With its socket, and what to do."""
    with pytest.raises(errors.PenstockError, match=r"does not answer on .*/s: ") as told:
        await sources.Socket(lambda: str(tmp_path / "s")).describe()
    assert "Is it running?" in told.value.hint
    async with await serve(tmp_path / "s", b"error", b"what?"):
        with pytest.raises(errors.PenstockError, match="did not understand"):
            await sources.Socket(lambda: str(tmp_path / "s")).describe()


async def test_what_a_call_returns_or_raises_comes_to_its_caller() -> None:
    """While others go on."""
    assert await threads.run(sorted, [2, 1], reverse=True) == [2, 1]
    with pytest.raises(KeyError):
        await threads.run(os.environ.__getitem__, "PENSTOCK_NO_SUCH_VARIABLE")


def test_a_call_that_blocks_does_not_keep_a_program_from_ending() -> None:
    """Who presses Ctrl-C is not held up by a silent server."""
    code = "import asyncio, time; from penstock.views import threads\n"
    code += "asyncio.run(asyncio.wait_for(threads.run(time.sleep, 60), 0.1))"
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert (done.returncode, b"TimeoutError" in done.stderr, time.monotonic() - began < 30) == (1, True, True)
