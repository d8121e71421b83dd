"""Streams of the API that may be silent for hours."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from penstock import errors
from penstock.kube import client, execs, kinds, kubeconfig

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def connected_to(port: int) -> list[socket.socket]:
    """Our sockets that are connected to that port."""
    found = []
    for one in gc.get_objects():
        if isinstance(one, socket.socket) and one.fileno() >= 0 and one.family == socket.AF_INET:
            try:
                found += [one] if one.getpeername()[1] == port else []
            except OSError:
                continue
    return found


@contextlib.asynccontextmanager
async def answered_by(answer: Answer) -> AsyncIterator[client.KubeClient]:
    """A client of a server with the given behaviour."""
    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    kube = client.KubeClient(kubeconfig.Access(server=f"http://127.0.0.1:{port}"))
    try:
        yield kube
    finally:
        await kube.close()
        listening.close()


async def test_streams_use_tcp_keepalive() -> None:
    """A log whose connection a load balancer dropped would be followed forever."""

    seen = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await seen.wait()
        writer.write(b"0\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    kube = client.KubeClient(kubeconfig.Access(server=f"http://127.0.0.1:{port}"))
    options: list[int] = []
    async for _ in kube.log(namespace="a", name="b", container="c"):
        ours = connected_to(port)
        options += [one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for one in ours]
        seen.set()
    await kube.close()
    listening.close()
    assert options
    assert all(options)


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 101 Switching", b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\n{"],
    ids=["nothing", "half an answer", "half a refusal"],
)
async def test_unanswered_upgrade_times_out(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """A server that accepts connections and never answers would keep a job's output forever."""
    monkeypatch.setattr(execs, "TIMEOUT", 0.2)
    over = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await over.wait()
        writer.close()

    async with answered_by(answer) as kube, asyncio.timeout(5):
        with pytest.raises(errors.KubeUnavailable, match="no answer"):
            async for _ in kube.stream(["cat"], namespace="a", name="b", container="c"):
                pass
        over.set()


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_watch_lines_end_at_line_feeds_only(size: int) -> None:
    """Annotations and variables may contain other line separators; splitting there would break the watch
    for all pods.
    """
    text = "a\x85b\u2028c\u2029d \xe9"
    event = {"type": "ADDED", "object": {"metadata": {"name": "p", "annotations": {"x": text}}}}
    sent = 3 * (json.dumps(event, ensure_ascii=False).encode() + b"\n")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(sent), size):
            piece = sent[at : at + size]
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        writer.write(b"0\r\n\r\n")
        writer.close()

    async with answered_by(answer) as kube:
        seen = [event.type async for event in kube.watch(kinds.PODS, version="1", seconds=1)]
    assert seen == ["ADDED"] * 3


async def test_endless_answer_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, the answer does not."""
    monkeypatch.setattr(client, "LONGEST", 0.3)
    over, closed = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{")
        while not over.is_set():
            writer.write(b" ")
            await asyncio.sleep(0.02)
        writer.close()
        closed.set()

    async with answered_by(answer) as kube, asyncio.timeout(5):
        with pytest.raises(errors.KubeUnavailable, match="does not answer"):
            await kube.list(kinds.PODS)
        over.set()
        await closed.wait()
