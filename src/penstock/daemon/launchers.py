"""A launcher at the other end of a connection: its request as data, and the frames it is sent."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator

from penstock.bridge import protocols
from penstock.calls import outcomes, requests
from penstock.daemon import connections
from penstock.hooks import relay
from penstock.model import launches

LARGEST_MESSAGE = (
    relay.CHUNK + 4096
)  # bytes of a launcher's later messages: what a command printed, or a word


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
        relays=bool(message.all("relays")),
    )


def commands_of(message: connections.Message) -> Iterator[str]:
    """The commands that a reattaching launcher has."""
    return (requests.key(word.decode("ascii", "replace")) for word in message.all("command"))


@dataclasses.dataclass(frozen=True)
class SocketLauncher:
    connection: connections.Connection

    async def hear(self) -> protocols.Message | None:
        while (message := await self.connection.receive(most=LARGEST_MESSAGE)) is not None:
            if message.verb == "synced":
                return protocols.Synced()
            if message.verb == "signal":
                number = signal.Signals(message.number("number"))
                return protocols.Signal(number, everyone=message.one("everyone") == b"1")
            if message.verb == "printed":
                return protocols.Printed(
                    requests.key(_text(message, "id")),
                    message.number("stream"),
                    message.number("offset"),
                    message.one("data"),
                )
            if message.verb == "ended":
                key, how = requests.key(_text(message, "id")), _text(message, "how")
                return protocols.Ended(key, how, message.number("number"))
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

    async def run(self, key: str, command: outcomes.Run) -> None:
        fields: list[bytes | str] = ["program", command.program]
        for kind, values in (("word", command.words), ("argument", command.arguments)):
            fields += [field for value in values for field in (kind, value)]
        for name, value in command.environment.items():
            fields += ["variable", name + b"=" + value]
        for value in command.script or ():
            fields += ["script", value]
        if command.folder:
            fields += ["folder", command.folder, "umask", command.umask]
        await self._about(key, "run", *fields)

    async def confirm(self, key: str, stream: int, offset: int) -> None:
        await self._about(key, "confirm", "stream", str(stream), "offset", str(offset))

    async def again(self, key: str) -> None:
        await self._about(key, "again")

    async def kill(self, key: str, number: int) -> None:
        await self._about(key, "kill", "number", str(number))

    async def forget(self, key: str) -> None:
        await self._about(key, "forget")

    async def _about(self, key: str, verb: str, *fields: bytes | str) -> None:
        """A message about a command."""
        await self.connection.send("command", verb, "id", key, *fields)


def _text(message: connections.Message, name: str) -> str:
    return message.one(name).decode("ascii", "replace")
