"""Limits per uid and job on penstockd's socket; no input stops the server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.daemon import connections, limits, server
from penstock.hooks import wire
from tests.unit import fakes, test_sessions


def test_open_requests_of_a_uid_are_limited() -> None:
    """Other uids are not affected, and an answered request makes room."""
    kept = limits.ConnectionLimits()
    with contextlib.ExitStack() as questions:
        for _ in range(limits.REQUESTS):
            questions.enter_context(kept.request(1001))
        with pytest.raises(limits.TooMany, match="1001"), kept.request(1001):
            pass
        with kept.request(1002):
            pass
    with kept.request(1001):
        pass


def test_launchers_of_a_job_are_limited() -> None:
    kept = limits.ConnectionLimits()
    with contextlib.ExitStack() as launchers:
        for _ in range(limits.SESSIONS):
            launchers.enter_context(kept.session(17))
        with pytest.raises(limits.TooMany), kept.session(17):
            pass


@given(some.binary(max_size=200))
def test_any_frame_is_a_message_or_a_wire_error(data: bytes) -> None:
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
async def test_the_server_survives_protocol_errors(served: Path, data: bytes) -> None:
    await answer_to(served, data)
    assert b"pong" in await answer_to(served, wire.pack("ping"))


async def test_too_many_jobs_in_a_request_are_refused(served: Path) -> None:
    """Looking them up would block others for minutes."""
    words = [word for number in range(server.MOST_DESCRIBED + 1) for word in ("job", str(number))]
    assert b"jobs at once" in await answer_to(served, wire.pack("describe", *words))
    assert b"jobs at once" not in await answer_to(served, wire.pack("describe", *words[2:]))


async def test_a_peer_that_does_not_read_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its descriptor is lost."""
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 0.05)
    world = test_sessions.World(tmp_path / "s")
    for number in range(5000):
        pod = fakes.pod(f"{number:0>200}", job=fakes.identity(number))
        world.pods.put(pod)
    ours, theirs = socket.socketpair()
    with theirs:
        handling = asyncio.create_task(world.server.handle(*await asyncio.open_connection(sock=ours)))
        theirs.sendall(wire.pack("describe"))
        await asyncio.wait([handling], timeout=10)
        assert handling.done()


async def test_launchers_that_wait_for_recovery_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before recovery penstockd cannot verify them."""
    monkeypatch.setattr(limits, "EARLY", 2)
    world = test_sessions.World(tmp_path / "s")
    world.recovered.clear()
    async with many(world) as say:
        assert [await say(7), await say(8), await say(9)] == [b"", b"", b"wait"]


async def test_bytes_in_open_requests_of_a_uid_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the launcher's job is confirmed."""
    monkeypatch.setattr(limits, "BYTES", 300)
    world = test_sessions.World(tmp_path / "s")
    world.recovered.clear()
    async with many(world, script=b"x" * 90) as say:
        assert [await say(7), await say(8), await say(9)] == [b"", b"", b"wait"]


async def test_queries_to_slurm_per_uid_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a process."""
    monkeypatch.setattr(limits, "REQUESTS", 2)
    world, asked = test_sessions.World(tmp_path / "s"), []

    async def slow(job_id: int) -> None:
        asked.append(job_id)
        await asyncio.Event().wait()

    monkeypatch.setattr(world.slurm, "live_job", slow)
    async with many(world) as say:
        assert [await say(7), await say(8), await say(9)] == [b"", b"", b"wait"]
    assert asked == [7, 8]


async def test_strangers_do_not_count_as_a_jobs_launchers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SESSIONS", 1)
    world = test_sessions.World(tmp_path / "s")
    world.run(7)
    known = world.bridge.launching.allocation_for

    async def slow(job_id: int, uid: int) -> None:
        await asyncio.Event().wait()

    async with many(world) as say:
        monkeypatch.setattr(world.bridge.launching, "allocation_for", slow)
        assert await say(7) == b""
        monkeypatch.setattr(world.bridge.launching, "allocation_for", known)
        assert await say(7) != b"wait"


async def test_a_message_with_too_many_fields_is_refused(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 MB of empty fields would take seconds to parse, and much memory."""
    monkeypatch.setattr(connections, "MOST_FIELDS", 4001)
    assert b"jobs at once" in await answer_to(served, wire.pack("describe", *("job", "1") * 2000))
    assert b"more than 4001 fields" in await answer_to(served, wire.pack("describe", *("",) * 4002))


async def test_large_messages_are_parsed_in_a_thread(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One at a time per uid."""
    taken, at_once, most = wire.unpack, 0, 0

    def unpack(body: bytes, most_fields: int) -> list[bytes]:
        nonlocal at_once, most
        assert threading.current_thread() is not threading.main_thread() or len(body) < 1000
        at_once += len(body) > 1000
        most = max(most, at_once)
        time.sleep(0.05)
        at_once -= len(body) > 1000
        return taken(body, most_fields)

    monkeypatch.setattr(wire, "unpack", unpack)
    large = wire.pack("describe", "x", b"x" * 2 * connections.LARGE)
    answers = await asyncio.gather(*(answer_to(served, large) for _ in range(5)))
    assert all(b"jobs" in answer for answer in answers)
    assert b"pong" in await answer_to(served, wire.pack("ping"))
    assert most == 1


async def test_a_long_verb_is_not_repeated(served: Path, caplog: pytest.LogCaptureFixture) -> None:
    """16 MB of it would fill the log and keep the connection."""
    answer = await answer_to(served, wire.pack("x" * 100_000, "a", "b"))
    assert b"error" in answer
    assert len(answer) < 1000
    assert len(caplog.text) < 1000


@pytest.mark.parametrize(("size", "taken"), [(1 << 20, True), (5 << 20, False)])
async def test_reattaching_launchers_have_a_size_limit(tmp_path: Path, size: int, taken: bool) -> None:
    """Their request is kept in memory while the job runs."""
    async with test_sessions.served(tmp_path / "s") as world:
        world.run(7)
        first = await test_sessions.connect(world)
        test_sessions.launch(first, 7)
        assert await first.hear() == [b"started"]
        again = await test_sessions.connect(world)
        test_sessions.launch(again, 7, attach="1", script=b"#!/x\n" + b"#" * size)
        assert (await again.hear())[0] == (b"started" if taken else b"error")


async def test_later_messages_of_launchers_have_a_size_limit(tmp_path: Path) -> None:
    async with test_sessions.served(tmp_path / "s") as world:
        world.run(7)
        peer = await test_sessions.connect(world)
        test_sessions.launch(peer, 7)
        assert await peer.hear() == [b"started"]
        peer.writer.write((1 << 20).to_bytes(4, "big") + b"x")
        assert await asyncio.wait_for(peer.reader.read(), 5) == b"", "the connection is closed"


@contextlib.asynccontextmanager
async def many(
    world: test_sessions.World, *, script: bytes = b""
) -> AsyncIterator[Callable[[int], Awaitable[bytes]]]:
    """Connect as the launcher of a job; the first verb that is answered, or nothing while penstockd lets it
    wait.
    """
    tasks: list[asyncio.Task[None]] = []
    sockets = contextlib.ExitStack()

    async def say(job_id: int) -> bytes:
        ours, theirs = socket.socketpair()
        sockets.enter_context(theirs)
        theirs.setblocking(False)
        theirs.sendall(wire.pack("launch", "slurm_job_id", str(job_id), "script", script))
        tasks.append(asyncio.create_task(world.server.handle(*await asyncio.open_connection(sock=ours))))
        for _ in range(100):
            await asyncio.sleep(0)
        with contextlib.suppress(BlockingIOError):
            return wire.unpack(theirs.recv(1000)[4:])[0]
        return b""

    with sockets:
        yield say
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def answer_to(path: Path, data: bytes) -> bytes:
    """Everything that is answered until the server closes."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(data)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()
        await writer.wait_closed()
