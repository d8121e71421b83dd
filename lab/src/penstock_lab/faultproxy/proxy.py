"""The proxy: forwards each request of a connection, unless a fault applies."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import ssl
import struct
from collections.abc import AsyncIterator

from penstock_lab.faultproxy import faultrules, kuberequests, lies, messages

CONNECT_SECONDS = 10.0
RESET = struct.pack("ii", 1, 0)  # SO_LINGER 0: close with RST
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Cut(Exception):
    """Close this connection without a response."""


@dataclasses.dataclass(frozen=True)
class Upstream:
    host: str
    port: int
    tls: ssl.SSLContext | None

    async def connect(self) -> Stream:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await asyncio.open_connection(
                self.host, self.port, ssl=self.tls, limit=messages.LARGEST_HEAD
            )


@dataclasses.dataclass
class Proxy:
    """Serves every connection with the current faults."""

    upstream: Upstream
    faults: faultrules.Faults
    writers: set[asyncio.StreamWriter] = dataclasses.field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, until it leaves or a fault closes the connection."""
        conversation = Conversation(self.upstream, self.faults, reader, writer)
        self.writers.add(writer)
        try:
            while await conversation.one_request():
                pass
            writer.close()
        except (Cut, messages.Broken, OSError, TimeoutError, asyncio.IncompleteReadError):
            reset(writer)
        finally:
            self.writers.discard(writer)
            conversation.close()

    def set(self, wanted: tuple[faultrules.Rule, ...]) -> None:
        """Replace the rules; `unreachable` also closes the open connections."""
        self.faults.set(wanted)
        if any(rule.fault == "unreachable" for rule in wanted):
            for writer in tuple(self.writers):
                reset(writer)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close the connection with a reset."""
    with contextlib.suppress(OSError):
        sock = writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


@dataclasses.dataclass
class Conversation:
    """A client's connection and its connection to the API."""

    _upstream: Upstream
    _faults: faultrules.Faults
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _api: Stream | None = None

    def close(self) -> None:
        if self._api is not None:
            self._api[1].transport.abort()
            self._api = None

    async def one_request(self) -> bool:
        """Serve one request; False if the client has closed."""
        head = await messages.read_head(self._reader)
        if head is None:
            return False
        method, target, _ = head.first.split(" ", 2)
        body = await messages.read_request_body(self._reader, head)
        request = kuberequests.understand(method, target)
        self._faults.count(request)
        if not await self._refused(request):
            await self._forward(request, head, body)
        return True

    async def _refused(self, request: kuberequests.Request) -> bool:
        """Apply the faults that precede the API; True if one of them has answered."""
        if self._faults.strikes("unreachable", request) or self._faults.strikes("cut", request):
            raise Cut
        if self._faults.strikes("hang", request):
            await self._faults.changed.wait()
            raise Cut
        if rule := self._faults.strikes("delay", request):
            await asyncio.sleep(rule.seconds)
        if rule := self._faults.strikes("status", request):
            await self._send(
                messages.answer(rule.status, lies.status_body(rule.status), retry_after=rule.seconds)
            )
            return True
        return False

    async def _forward(self, request: kuberequests.Request, head: messages.Head, body: bytes) -> None:
        """Forward the request to the API and its response, possibly falsified, to the client."""
        reader, writer = self._api = self._api or await self._upstream.connect()
        sent = head.without("accept-encoding", "transfer-encoding", "content-length")
        if body or head.get("content-length"):
            sent = sent.plus("Content-Length", str(len(body)))
        writer.write(sent.encode() + body)
        await writer.drain()
        answer = await messages.read_head(reader)
        if answer is None:
            raise messages.Broken("the API closed without a response")
        if self._faults.strikes("swallow", request):
            raise Cut
        if answer.status == 101:
            await self._tunnel(answer, reader, writer)
        elif request.verb == "watch" and answer.status == 200:
            await self._pass_watch(request, answer, messages.pieces(reader, answer))
        elif answer.is_chunked and request.verb != "list":
            await self._pass_stream(answer, messages.pieces(reader, answer))
        else:
            await self._pass_whole(request, answer, messages.pieces(reader, answer))
        if answer.get("connection").lower() == "close":
            self.close()

    async def _pass_whole(
        self, request: kuberequests.Request, answer: messages.Head, body: AsyncIterator[bytes]
    ) -> None:
        content = b"".join([piece async for piece in body])
        if request.verb == "list" and answer.status == 200:
            content = lies.shorten(content, request, self._faults)
        head = answer.without("transfer-encoding", "content-length").plus("Content-Length", str(len(content)))
        if self._faults.strikes("half", request):
            await self._send(head.encode() + content[: len(content) // 2])
            raise Cut
        await self._send(head.encode() + content)

    async def _pass_stream(self, answer: messages.Head, body: AsyncIterator[bytes]) -> None:
        await self._send(answer.encode())
        async for piece in body:
            await self._send(messages.chunk(piece))
        await self._send(messages.LAST_CHUNK)

    async def _pass_watch(
        self, request: kuberequests.Request, answer: messages.Head, body: AsyncIterator[bytes]
    ) -> None:
        """Forward a watch event by event; the fault `gone` ends it with a 410."""
        head = answer.without("content-length", "transfer-encoding").plus("Transfer-Encoding", "chunked")
        await self._send(head.encode())
        liar = lies.EventLiar(request, self._faults)
        gone = asyncio.create_task(self._until_gone(request))
        lines = _lines(body)
        try:
            while (line := await _first(lines, gone)) is not None:
                for told in liar.lines(line):
                    await self._send(messages.chunk(told))
            if gone.done():
                await self._send(messages.chunk(lies.gone_event()))
                self.close()
        finally:
            gone.cancel()
        await self._send(messages.LAST_CHUNK)

    async def _until_gone(self, request: kuberequests.Request) -> None:
        while not self._faults.strikes("gone", request):
            await self._faults.changed.wait()

    async def _tunnel(
        self, answer: messages.Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forward bytes both ways (pods/exec) until one side closes."""
        await self._send(answer.encode())
        ways = [
            asyncio.create_task(_pump(reader, self._writer)),
            asyncio.create_task(_pump(self._reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        raise Cut

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(messages.PIECE):
        writer.write(data)
        await writer.drain()


async def _lines(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The body line by line, with line ends."""
    rest = b""
    async for piece in body:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line + b"\n"


async def _first(lines: AsyncIterator[bytes], end: asyncio.Task[None]) -> bytes | None:
    """The next line; None at the end of the body, or if `end` is done first."""
    coming = asyncio.ensure_future(anext(lines, None))
    try:
        await asyncio.wait((coming, end), return_when=asyncio.FIRST_COMPLETED)
        return coming.result() if coming.done() and not end.done() else None
    finally:
        if not coming.done():
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
