"""How much of penstockd one user can take up, and that no bytes on its socket do harm."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.daemon import connections, doors
from penstock.hooks import wire
from tests.unit import test_sessions


def test_a_user_has_so_many_questions_and_no_more() -> None:
    """The one beyond is refused, other users are not, and an answered one makes room."""
    kept = doors.Doors()
    with contextlib.ExitStack() as questions:
        for _ in range(doors.ASKING):
            questions.enter_context(kept.asking(1001))
        with pytest.raises(doors.TooMany, match="1001"), kept.asking(1001):
            pass
        with kept.asking(1002):
            pass
    with kept.asking(1001):
        pass


def test_a_job_has_so_many_launchers() -> None:
    """A second one may come while the first's end is not seen; a crowd may not."""
    kept = doors.Doors()
    with contextlib.ExitStack() as launchers:
        for _ in range(doors.SESSIONS):
            launchers.enter_context(kept.session(17))
        with pytest.raises(doors.TooMany), kept.session(17):
            pass


@given(some.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error_in_words(data: bytes) -> None:
    """Nothing else comes out of a frame's body."""
    try:
        message = connections.parse(wire.unpack(data))
    except wire.WireError:
        return
    assert isinstance(message.verb, str)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Path]:
    """A socket with penstockd's server behind it."""
    world = test_sessions.World(tmp_path / "s")
    async with await asyncio.start_unix_server(world.server.handle, world.path):
        yield world.path


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        wire.pack("admit"),
        wire.pack("launch", "slurm_job_id", "x"),
        wire.pack("describe", "job", "\x00", "job", "9" * 30),
        wire.pack("nonsense", "a", "b"),
        wire.pack(b"\xff\xfe", b"\xff", b"\xfe"),
        b"\0\0\0\x08\xff\xff\xff\xff\0\0\0\0",
    ],
)
async def test_nonsense_is_answered_and_the_next_one_is_served(served: Path, data: bytes) -> None:
    """No message ends the server; the one after it is heard."""
    await answer_to(served, data)
    assert b"pong" in await answer_to(served, wire.pack("ping"))


async def answer_to(path: Path, data: bytes) -> bytes:
    """Everything that comes back until the server closes."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(data)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()
        await writer.wait_closed()
