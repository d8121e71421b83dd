"""Parts of the agents by themselves: children, cgroups, the bell, faults, watches that are left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock_lab.devcluster import faults, kindtable, podlogs, podprocesses, statuses, watches
from penstock_lab.devcluster.objectstore import Store
from tests.devcluster import clusters as testing
from tests.devcluster.clusters import pod


def description(*argv: str, **more: Any) -> dict[str, Any]:
    """What podinit is told, for a process without a namespace of its own."""
    base = {
        "argv": list(argv),
        "env": {"PATH": os.environ["PATH"]},
        "cwd": "/",
        "uid": os.getuid(),
        "gid": os.getgid(),
    }
    rest = {
        "groups": [],
        "isolate": False,
        "hostname": "h",
        "root": "/nonexistent",
        "readonly_root": False,
        "mounts": [],
    }
    return {**base, **rest, "cgroup": "", **more}


async def run(*argv: str, **more: Any) -> tuple[int, bytes]:
    """Wait status and output of one child."""
    source, sink = os.pipe()
    try:
        pid = await podprocesses.start(description(*argv, **more), sink)
        os.close(sink)
        sink = -1
        status = await podprocesses.reap(pid)
        return status, os.read(source, 65536)
    finally:
        os.close(source)
        if sink >= 0:
            os.close(sink)


async def test_container_process_leads_a_session_and_inherits_only_stdio(tmp_path: Path) -> None:
    """No file descriptor of the server reaches the container, and it leads its own session."""
    script = "ls /proc/self/fd | wc -l; read -r _ _ _ _ _ session _ < /proc/$$/stat; echo $session $$"
    status, output = await run("sh", "-c", script)
    count, session, pid = output.split()
    assert (status, count, session) == (0, b"4", pid)


async def test_wait_status_of_killed_process(tmp_path: Path) -> None:
    """The wait status distinguishes a signal from an exit code."""
    status, _ = await run("sh", "-c", "kill -TERM $$")
    assert os.WTERMSIG(status) == signal.SIGTERM


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"argv": ["no-such-thing"]}, 'exec: "no-such-thing": executable file not found in $PATH'),
        ({"argv": ["/no/such/thing"]}, 'exec: "/no/such/thing": no such file or directory'),
        ({"argv": ["/etc/passwd"]}, 'exec: "/etc/passwd": permission denied'),
        ({"cwd": "/no/such/directory"}, "/no/such/directory"),
        ({"cgroup": "/no/such/cgroup"}, "/no/such/cgroup"),
    ],
)
async def test_start_errors_are_reported(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    """Errors before the exec are in the message, and no process is left."""
    with pytest.raises(podprocesses.StartError) as refused:
        await run("true", **more)
    assert message in str(refused.value)


async def test_hanging_start_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that never gets to its command is killed after a timeout."""
    monkeypatch.setattr(podprocesses, "_START_TIMEOUT", 0.3)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(podprocesses.StartError, match="not started within"):
        await asyncio.wait_for(run("true", cgroup=str(fifo)), 60)


def test_signal_to_ended_process_is_ignored() -> None:
    """Processes may end at any time."""
    ended = subprocess.Popen(["true"])
    ended.wait(60)
    for number in (signal.SIGKILL, signal.SIGTERM):
        podprocesses.send(ended.pid, number)
    assert ended.returncode == 0


def test_unwritable_cgroups_are_reported_by_an_event(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The pod runs, the limit is not enforced, and an event says so."""
    monkeypatch.setattr(podprocesses, "LEGACY", tmp_path / "none" / "memory")
    monkeypatch.setattr(podprocesses, "UNIFIED", tmp_path / "none")
    with testing.serve() as running, running.client() as api:
        api.create("pods", pod("p", "true", container={"resources": {"limits": {"memory": "64Mi"}}}))
        api.phase("p", "Succeeded")
        events = api.get("events", fieldSelector="reason=MemoryLimitIgnored")["items"]
    assert "memory limits are not enforced" in events[0]["message"]


def test_cgroup_v2_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Version 2 takes memory.max and kills the whole group; a directory stands in for the kernel here."""
    (tmp_path / "cgroup.controllers").write_text("memory")
    monkeypatch.setattr(podprocesses, "UNIFIED", tmp_path)
    groups = podprocesses.Cgroups(tmp_path / "data")
    group = groups.make("c", 1234)
    assert group is not None
    assert (group.path / "memory.max").read_text() == "1234"
    assert (group.path / "memory.oom.group").read_text() == "1"
    (group.path / "memory.events").write_text("oom 1\noom_kill 1\n")
    assert group.was_out_of_memory()
    (group.path / "memory.events").write_text("oom 0\noom_kill 0\n")
    assert not group.was_out_of_memory()


async def woken(wait: Callable[[], Awaitable[object]], act: Callable[[], None]) -> bool:
    """Does the act wake who waits?"""
    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    act()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    done = task.done()
    task.cancel()
    return done


async def test_ring_wakes_all_current_waiters() -> None:
    """All waiters see one ring; a ring before waiting is not remembered."""
    bell = asyncio.Event()
    podlogs.ring(bell)
    assert not await woken(bell.wait, lambda: None)
    assert await woken(bell.wait, lambda: podlogs.ring(bell))
    waiters = [asyncio.create_task(bell.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    podlogs.ring(bell)
    await asyncio.wait_for(asyncio.gather(*waiters), 60)


def test_fault_changes_notify_listeners() -> None:
    """Every change is notified, a refused one is not."""
    known, heard = faults.Faults(), list[str]()
    known.listeners.append(lambda: heard.append("change"))
    known.put(["nodes", "n"], {"reject": "OutOfcpu"})
    with pytest.raises(statuses.ApiError):
        known.put(["nodes", "n"], {"reject": 7})
    known.clear()
    assert heard == ["change", "change"]
    assert known.of("nodes", "n") == {}


async def test_closed_watch_unsubscribes() -> None:
    """A closed watch costs nothing, whether it had started or not."""
    store = Store()
    request = watches.WatchRequest(kindtable.CONFIGMAPS, None)
    never_begun = watches.watch(store, request)
    begun = watches.watch(store, request)
    first = asyncio.ensure_future(anext(begun))
    await asyncio.sleep(0)
    store.put(kindtable.CONFIGMAPS, {"metadata": {"namespace": "ns", "name": "a", "uid": "u"}})
    assert b"ADDED" in await first
    await never_begun.aclose()
    await begun.aclose()
    assert not any(store._listeners.values())


async def test_bookmark_is_never_ahead_of_sent_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new watch from a bookmark misses nothing, also if a change coincides with it."""
    store, wait_for = Store(), asyncio.wait_for

    async def late(coroutine: Any, patience: float) -> Any:
        monkeypatch.setattr(asyncio, "wait_for", wait_for)
        coroutine.close()
        store.put(kindtable.CONFIGMAPS, {"metadata": {"namespace": "ns", "name": "a", "uid": "u"}})
        raise TimeoutError

    monkeypatch.setattr(asyncio, "wait_for", late)
    lines = watches.watch(store, watches.WatchRequest(kindtable.CONFIGMAPS, None, bookmarks=True))
    assert b'"type":"ADDED"' in await anext(lines)
    await lines.aclose()


async def test_slow_watcher_gets_410(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue longer than the history ends with the same 410 as a version that is too old."""
    monkeypatch.setattr(watches, "HISTORY", 3)
    store = Store()
    lines = watches.watch(store, watches.WatchRequest(kindtable.CONFIGMAPS, None))
    first = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)
    for number in range(9):
        store.put(kindtable.CONFIGMAPS, {"metadata": {"namespace": "ns", "name": f"a{number}", "uid": "u"}})
    seen = [await first, *[line async for line in lines]]
    assert b'"code":410' in seen[-1]
    assert b'"type":"ERROR"' in seen[-1]
