"""A minimal HTTP/1.1 parser: enough to forward messages and change their bodies."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

LARGEST_HEAD = 1 << 16
PIECE = 1 << 16


class Broken(Exception):
    """The peer does not speak HTTP, or closed in the middle of a message."""


@dataclasses.dataclass(frozen=True)
class Head:
    """First line and header fields, in order."""

    first: str
    fields: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        return next((value for key, value in self.fields if key.lower() == name), "")

    def without(self, *names: str) -> Head:
        return Head(self.first, tuple(field for field in self.fields if field[0].lower() not in names))

    def plus(self, name: str, value: str) -> Head:
        return Head(self.first, (*self.fields, (name, value)))

    def encode(self) -> bytes:
        lines = (self.first, *(f"{name}: {value}" for name, value in self.fields), "", "")
        return "\r\n".join(lines).encode("latin-1")

    @property
    def status(self) -> int:
        return int(self.first.split()[1])

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.get("transfer-encoding").lower()


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next head; None if the peer closed between messages."""
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise Broken("closed within a head") from error
    except asyncio.LimitOverrunError as error:
        raise Broken("head too large") from error
    first, *lines = text[:-4].split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return Head(first, tuple((name.strip(), value.strip()) for name, _, value in pairs))


async def read_request_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    """The body of a request; clients of the API always send its length, or chunks."""
    if head.is_chunked:
        return b"".join([piece async for piece in _chunks(reader)])
    return await reader.readexactly(int(head.get("content-length") or 0))


async def pieces(reader: asyncio.StreamReader, head: Head) -> AsyncIterator[bytes]:
    """The body of a response, piece by piece; raises Broken if it ends early."""
    if head.status in (101, 204, 304):
        return
    if head.is_chunked:
        async for piece in _chunks(reader):
            yield piece
    elif head.get("content-length"):
        left = int(head.get("content-length"))
        while left:
            piece = await reader.read(min(left, PIECE))
            if not piece:
                raise Broken("closed within a body")
            left -= len(piece)
            yield piece
    else:
        while piece := await reader.read(PIECE):
            yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    try:
        while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            yield (await reader.readexactly(size + 2))[:-2]
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise Broken("closed within a chunked body") from error


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n" if data else b""


LAST_CHUNK = b"0\r\n\r\n"


def answer(status: int, body: bytes, *, retry_after: float = 0) -> bytes:
    """A complete response of our own."""
    head = Head(f"HTTP/1.1 {status} Fault", (("Content-Type", "application/json"),))
    if retry_after:
        head = head.plus("Retry-After", f"{retry_after:g}")
    return head.plus("Content-Length", str(len(body))).encode() + body
