"""A launcher at the other end of a connection: its request as data, and the frames it is sent."""

from __future__ import annotations

import dataclasses
import signal

from penstock.bridge import protocols
from penstock.daemon import connections
from penstock.model import launches

LARGEST_WORD = 4096  # bytes of a launcher's later messages: a signal, or that all output is written


def request_of(message: connections.Message) -> launches.LaunchRequest:
    """The launcher's request; the script's directives are not parsed yet."""
    return launches.LaunchRequest(
        interpreter=message.one("interpreter"),
        script=message.one("script"),
        arguments=message.all("argument"),
        environment=message.all("environment"),
        workdir=message.one("workdir"),
        stdout=message.one("stdout"),
        stderr=message.one("stderr"),
        stdin=next(iter(message.all("stdin")), b"/dev/null"),
        umask=next(iter(message.all("umask")), b""),
    )


@dataclasses.dataclass(frozen=True)
class SocketLauncher:
    connection: connections.Connection

    async def hear(self) -> protocols.Signal | protocols.Synced | None:
        while (message := await self.connection.receive(most=LARGEST_WORD)) is not None:
            if message.verb == "synced":
                return protocols.Synced()
            if message.verb == "signal":
                number = signal.Signals(message.number("number"))
                return protocols.Signal(number, everyone=message.one("everyone") == b"1")
        return None

    async def started(self) -> None:
        await self.connection.send("started")

    async def note(self, text: str) -> None:
        await self.connection.send("note", text)

    async def output(self, chunk: bytes, stream: int) -> None:
        await self.connection.send("output", chunk, str(stream))

    async def sync(self) -> None:
        await self.connection.send("sync")

    async def delivered(self) -> None:
        await self.connection.send("delivered")

    async def die(self, number: int) -> None:
        await self.connection.send("signal", str(number))

    async def exit(self, code: int) -> None:
        await self.connection.send("exit", str(code))
