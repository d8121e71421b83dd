"""One connection on penstockd's socket: frames, and the peer's uid from the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import struct
from collections.abc import Callable

from penstock.hooks import wire
from penstock.model import numbers

CLOSE_SECONDS = 10.0  # for the peer to read the last frames; penstockd's exit waits for it
LARGE = 64 * 1024  # bytes; larger messages are parsed in a thread
MOST_FIELDS = 300_000  # two for each variable and argument of a job; the kernel allows 2 MB of both
LONGEST_VERB = 32  # bytes: verbs are repeated in the log and in answers; our longest has eight letters


@dataclasses.dataclass(frozen=True)
class Message:
    """A verb with named values; a name may occur more than once."""

    verb: str
    fields: tuple[tuple[str, bytes], ...]

    @property
    def size(self) -> int:
        return sum(len(value) for _, value in self.fields)

    def all(self, name: str) -> tuple[bytes, ...]:
        return tuple(value for key, value in self.fields if key == name)

    def one(self, name: str) -> bytes:
        values = self.all(name)
        if not values:
            raise wire.WireError(f"{self.verb}: {name} is missing")
        return values[0]

    def number(self, name: str) -> int:
        """The value of that name as a number, not below zero."""
        text = self.one(name)
        found = numbers.natural(text)
        if found is None:
            raise wire.WireError(f"{self.verb}: {name} is not a number: {text[:20]!r}")
        return found


def parse(fields: list[bytes]) -> Message:
    if not fields or len(fields) % 2 == 0:
        raise wire.WireError("a message is a verb followed by names and values")
    if len(fields[0]) > LONGEST_VERB:
        raise wire.WireError(f"a verb of {len(fields[0])} bytes is over the limit")
    names = (name.decode("ascii", "replace") for name in fields[1::2])
    return Message(fields[0].decode("ascii", "replace"), tuple(zip(names, fields[2::2], strict=True)))


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.uid = peer_uid(writer.get_extra_info("socket"))
        self.parsing = asyncio.Lock()
        """Held while a large message is parsed; shared by the connections of a uid."""
        self.kept = contextlib.ExitStack()
        """Bytes counted against the uid until the request is attributed to a job."""

    async def receive(
        self, announced: Callable[[int], None] = lambda size: None, *, most: int = wire.MAX_FRAME
    ) -> Message | None:
        """The next message; None at end of file. `announced` is called with its size before it is read."""
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            if size > most:
                raise wire.WireError(f"a frame of {size} bytes is over the limit")
            announced(size)
            body = await self._reader.readexactly(size)
            if size <= LARGE:
                return parse(wire.unpack(body, MOST_FIELDS))
            async with self.parsing:
                return await asyncio.to_thread(lambda: parse(wire.unpack(body, MOST_FIELDS)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def send(self, *fields: bytes | str) -> None:
        """Send one frame, waiting while the peer does not read. A closed peer is noticed by `receive`."""
        try:
            self._writer.write(wire.pack(*fields))
            await self._writer.drain()
        except ConnectionError:
            return

    def abort(self) -> None:
        """Close at once and drop what the peer has not read."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close, dropping what the peer does not read in time: a launcher reconnects and is told again."""
        self._writer.close()
        try:
            await asyncio.wait_for(self._writer.wait_closed(), CLOSE_SECONDS)
        except TimeoutError:
            self.abort()
        except ConnectionError:
            return


def peer_uid(sock: socket.socket) -> int:
    """The peer's uid, from the kernel (SO_PEERCRED) and not from a message."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, _gid = struct.unpack("3i", credentials)
    return int(uid)
