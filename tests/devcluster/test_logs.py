"""Logs: the log file by itself, and pods/log over HTTP with all its options."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_lab.devcluster import podlogs
from tests.devcluster import clusters as testing
from tests.devcluster.clusters import pod


async def collect(log: podlogs.Log, **wish: Any) -> bytes:
    return b"".join([chunk async for chunk in podlogs.stream(log, **wish)])


@given(
    lines=st.lists(st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"")), max_size=30),
    tail=st.integers(0, 40),
)
def test_tail_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], tail: int) -> None:
    """tailLines gives the last lines of any content, whether it ends with a newline or not."""

    async def check() -> None:
        log = podlogs.Log(tmp_path_factory.mktemp("log") / "f")
        content = b"".join(line + b"\n" for line in lines)
        if content:
            log.write(content)
        log.close()
        expected = (
            b"".join(line + b"\n" for line in lines[len(lines) - tail :]) if tail < len(lines) else content
        )
        assert await collect(log, tail=tail) == expected

    asyncio.run(check())


async def test_follower_gets_every_byte_and_the_end(tmp_path: Path) -> None:
    """A follower that is slower than the writer still sees all of it, and ends when the log does."""
    log = podlogs.Log(tmp_path / "f")
    follower = asyncio.create_task(collect(log, follow=True))
    for number in range(100):
        log.write(b"%d\n" % number)
        if number % 10 == 0:
            await asyncio.sleep(0)
    log.close()
    assert await asyncio.wait_for(follower, 60) == b"".join(b"%d\n" % number for number in range(100))


async def test_removed_log_can_be_read_to_its_end(tmp_path: Path) -> None:
    """Removing the pod does not interrupt current readers."""
    log = podlogs.Log(tmp_path / "f")
    log.write(b"a" * 200_000)
    stream = podlogs.stream(log, follow=True)
    first = await anext(stream)
    log.forget()
    rest = b"".join([chunk async for chunk in stream])
    assert len(first + rest) == 200_000
    assert not (tmp_path / "f").exists()


async def test_limit_bytes(tmp_path: Path) -> None:
    """limitBytes is exact, also across chunks."""
    log = podlogs.Log(tmp_path / "f")
    log.write(b"x" * 100_000)
    log.close()
    for limit in (0, 1, 65_536, 70_000, 200_000):
        assert len(await collect(log, limit=limit)) == min(limit, 100_000)


async def test_full_disk_does_not_block_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the log cannot be written its reader ends, so that the writer gets an error instead of waiting."""
    log = podlogs.Log(tmp_path / "f")
    monkeypatch.setattr(podlogs.Log, "write", _no_space)
    sink = log.open_pipe()
    try:
        os.write(sink, b"lost\n")
        await asyncio.wait_for(log.ended.wait(), 60)
        with pytest.raises(BrokenPipeError):
            os.write(sink, b"more\n")
    finally:
        os.close(sink)


async def test_log_request_is_bound_to_one_run(tmp_path: Path) -> None:
    """A container that restarts before the response begins does not replace its log."""
    log = podlogs.Log(tmp_path / "f")
    log.write(b"first run")
    answer = podlogs.stream(log, follow=True)
    log.forget()
    podlogs.Log(tmp_path / "f").write(b"second run")
    assert [chunk async for chunk in answer] == [b"first run"]


async def test_partially_written_log_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing bytes are not waited for in a busy loop."""
    log, write = podlogs.Log(tmp_path / "f"), os.write
    monkeypatch.setattr(os, "write", lambda file, chunk: write(file, chunk[:4]))
    log.write(b"kept and lost")
    follower = podlogs.stream(log, follow=True)
    assert await anext(follower) == b"kept"
    log.close()
    assert [chunk async for chunk in follower] == []


def _no_space(log: podlogs.Log, chunk: bytes) -> None:
    raise OSError(28, "No space left on device")


def test_options_over_http(api: testing.Client) -> None:
    """tailLines and limitBytes work as query parameters; what cannot be given is refused."""
    api.create("pods", pod("p", "sh", "-c", "echo one; echo two >&2; echo three"))
    api.phase("p", "Succeeded")
    assert api.log("p") == "one\ntwo\nthree\n"
    assert api.log("p", tailLines="2") == "two\nthree\n"
    assert api.log("p", limitBytes="5") == "one\nt"
    assert api.log("p", timestamps="false") == api.log("p")
    refusal = api.call("GET", api.path("pods", "p/log"), timestamps="true", sinceSeconds="3")
    assert "keeps no logs with sinceSeconds or timestamps" in refusal["message"]


def test_follow_ends_with_the_container_and_keeps_the_tail(api: testing.Client) -> None:
    """Following from the start gives every byte of a burst at the very end."""
    script = "echo start; sleep 0.3; seq 20000; printf last"
    api.create("pods", pod("p", "sh", "-c", script))
    api.phase("p", "Running", "Succeeded")
    text = api.log("p", follow="true")
    assert text == "start\n" + "".join(f"{number}\n" for number in range(1, 20001)) + "last"


def test_follow_survives_the_deletion_of_the_pod(api: testing.Client) -> None:
    """What the process says on SIGTERM reaches the follower although the object goes."""
    script = "trap 'sleep 0.1; echo farewell; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    api.create("pods", pod("p", "sh", "-c", script))
    api.phase("p", "Running")
    with api.http.stream("GET", api.path("pods", "p/log"), params={"follow": "true"}) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "up"
        with testing.Client(str(api.http.base_url), "test-admin", api.namespace) as other:
            other.delete("pods", "p")
        assert list(lines) == ["farewell"]


def test_log_errors(api: testing.Client) -> None:
    """No such pod, no such container, not started yet."""
    assert api.call("GET", api.path("pods", "none/log"))["code"] == 404
    never = {"volumes": [{"name": "v", "secret": {"secretName": "none"}}]}
    mounted = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    api.create("pods", pod("p", "true", nodeName="n1", container=mounted, **never))
    assert "waiting to start" in api.call("GET", api.path("pods", "p/log"))["message"]
    assert "is not valid for pod" in api.call("GET", api.path("pods", "p/log"), container="other")["message"]
