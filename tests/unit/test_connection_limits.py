"""How much of penstockd one user can take up, and that no bytes on its socket do harm."""

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


def test_a_user_has_so_many_questions_and_no_more() -> None:
    """The one beyond is refused, other users are not, and an answered one makes room."""
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


def test_a_job_has_so_many_launchers() -> None:
    """A second one may come while the first's end is not seen; a crowd may not."""
    kept = limits.ConnectionLimits()
    with contextlib.ExitStack() as launchers:
        for _ in range(limits.SESSIONS):
            launchers.enter_context(kept.session(17))
        with pytest.raises(limits.TooMany), kept.session(17):
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


async def test_a_question_about_a_million_jobs_is_refused(served: Path) -> None:
    """Looking them all up would hold everybody else up for minutes."""
    words = [word for number in range(server.MOST_DESCRIBED + 1) for word in ("job", str(number))]
    assert b"jobs at once" in await answer_to(served, wire.pack("describe", *words))
    assert b"jobs at once" not in await answer_to(served, wire.pack("describe", *words[2:]))


async def test_whoever_does_not_read_the_answer_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each such connection would be a descriptor that is taken for ever."""
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


async def test_launchers_that_wait_for_penstockd_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it knows the jobs that run it cannot tell a launcher from anybody who says to be one."""
    monkeypatch.setattr(limits, "EARLY", 2)
    world = test_sessions.World(tmp_path / "s")
    world.recovered.clear()
    async with many(world) as say:
        assert [await say(7), await say(8), await say(9)] == [b"", b"", b"wait"]


async def test_what_penstockd_keeps_of_one_users_questions_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large ones count by their size, until it is known that they are a launcher's."""
    monkeypatch.setattr(limits, "BYTES", 300)
    world = test_sessions.World(tmp_path / "s")
    world.recovered.clear()
    async with many(world, script=b"x" * 90) as say:
        assert [await say(7), await say(8), await say(9)] == [b"", b"", b"wait"]


async def test_slurm_is_not_asked_for_as_many_jobs_as_anybody_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question is a process."""
    monkeypatch.setattr(limits, "REQUESTS", 2)
    world, asked = test_sessions.World(tmp_path / "s"), []

    async def slow(job_id: int) -> None:
        asked.append(job_id)
        await asyncio.Event().wait()

    monkeypatch.setattr(world.slurm, "live_job", slow)
    async with many(world) as say:
        assert [await say(7), await say(8), await say(9)] == [b"", b"", b"wait"]
    assert asked == [7, 8]


async def test_a_job_is_not_kept_from_its_launcher_by_others_who_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections count against a job once it is known that they are its owner's, not before."""
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


async def test_a_message_of_countless_fields_is_refused(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 MB of empty ones would take seconds to take apart, and much memory."""
    monkeypatch.setattr(connections, "MOST_FIELDS", 4001)
    assert b"jobs at once" in await answer_to(served, wire.pack("describe", *("job", "1") * 2000))
    assert b"more than 4001 fields" in await answer_to(served, wire.pack("describe", *("",) * 4002))


async def test_a_large_message_is_taken_apart_beside_the_loop(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody else is served meanwhile; and of one user's, one after the other."""
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


async def test_a_long_verb_is_neither_logged_nor_sent_back(
    served: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever sends 16 MB of it and reads no answer would fill the log and keep the connection."""
    answer = await answer_to(served, wire.pack("x" * 100_000, "a", "b"))
    assert b"error" in answer
    assert len(answer) < 1000
    assert len(caplog.text) < 1000


@pytest.mark.parametrize(("size", "taken"), [(1 << 20, True), (5 << 20, False)])
async def test_launchers_that_come_again_are_kept_only_with_what_a_pod_can_have(
    tmp_path: Path, size: int, taken: bool
) -> None:
    """What they say is in memory for as long as the job runs, and each job may have several."""
    async with test_sessions.served(tmp_path / "s") as world:
        world.run(7)
        first = await test_sessions.connect(world)
        test_sessions.launch(first, 7)
        assert await first.hear() == [b"started"]
        again = await test_sessions.connect(world)
        test_sessions.launch(again, 7, attach="1", script=b"#!/x\n" + b"#" * size)
        assert (await again.hear())[0] == (b"started" if taken else b"error")


async def test_launchers_that_are_connected_send_small_messages(tmp_path: Path) -> None:
    """What comes after the question is a signal or a word: nobody keeps 16 MB for each of a user's jobs."""
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
    """Says to be the launcher of a job, over a connection of its own; the first word that comes, or nothing
    when penstockd keeps it waiting.
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
    """Everything that comes back until the server closes."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(data)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()
        await writer.wait_closed()
