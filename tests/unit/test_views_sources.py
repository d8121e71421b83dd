"""penstockd through its socket, and blocking calls."""

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
    """A penstockd that gives this answer to any request."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.write(wire.pack(*answer))
        writer.close()

    return await asyncio.start_unix_server(reply, path)


@pytest.mark.parametrize(("more", "hides"), [((b"all",), False), ((), True)])
async def test_answer_says_whose_jobs_it_contains(
    tmp_path: Path, more: tuple[bytes, ...], hides: bool
) -> None:
    """The caller's, or all."""
    known = msgspec.json.encode([descriptions.JobView(17)])
    async with await serve(tmp_path / "s", b"jobs", known, *more):
        answer = await sources.Socket(lambda: str(tmp_path / "s")).describe([17])
    own = pwd.getpwuid(os.geteuid()).pw_name
    assert (answer.by_job(), answer.hides("somebody"), answer.hides(own)) == (
        {17: descriptions.JobView(17)},
        hides,
        False,
    )


async def test_unreachable_penstockd_is_an_error(tmp_path: Path) -> None:
    """With its socket and a hint."""
    with pytest.raises(errors.PenstockError, match=r"does not answer on .*/s: ") as told:
        await sources.Socket(lambda: str(tmp_path / "s")).describe()
    assert "Is it running?" in told.value.hint
    async with await serve(tmp_path / "s", b"error", b"what?"):
        with pytest.raises(errors.PenstockError, match="did not understand"):
            await sources.Socket(lambda: str(tmp_path / "s")).describe()


async def test_result_or_error_is_passed_on() -> None:
    """To the caller."""
    assert await threads.run(sorted, [2, 1], reverse=True) == [2, 1]
    with pytest.raises(KeyError):
        await threads.run(os.environ.__getitem__, "PENSTOCK_NO_SUCH_VARIABLE")


def test_blocking_call_does_not_delay_exit() -> None:
    """Ctrl-C works while a server does not answer."""
    code = "import asyncio, time; from penstock.views import threads\n"
    code += "asyncio.run(asyncio.wait_for(threads.run(time.sleep, 60), 0.1))"
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert (done.returncode, b"TimeoutError" in done.stderr, time.monotonic() - began < 30) == (1, True, True)
