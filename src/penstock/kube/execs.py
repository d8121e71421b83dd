"""Commands in containers: `pods/exec` over a WebSocket, for signals, fetched output and conversations.

The API server speaks channels: the first byte of a message says which stream it belongs to. How a command
ended is in a Status object that the server sends on the error channel just before it closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence

import msgspec
import wsproto
from wsproto import events

from penstock import errors
from penstock.kube import addresses, apierrors, codec, kinds, kubeconfig

PROTOCOL = "v4.channel.k8s.io"
STDIN_CHANNEL, ERROR_CHANNEL = 0, 3
TIMEOUT = 10.0
LARGEST_INPUT = 32 * 1024  # bytes of a message to the command
QUIET_SECONDS = 60  # a peer that says nothing for so long is asked by the kernel whether it is still there
KEEP_ASKING = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, QUIET_SECONDS),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, QUIET_SECONDS // 4),
)
"""A stream may be silent for hours: only the kernel can tell that from a peer that is gone."""
Output = tuple[int, bytes]
"""Which of the command's streams (1 or 2), and what it printed there."""


class ExecStatus(msgspec.Struct, frozen=True):
    """How the command ended."""

    status: str = ""
    message: str = ""


async def run(
    access: kubeconfig.Access,
    *,
    namespace: str,
    name: str,
    container: str,
    command: Sequence[str],
    text: bytes = b"",
) -> None:
    """Returns when the command has succeeded; KubeError when it failed, KubeUnavailable when nobody knows.

    Its standard input is `text`, without an end of file.
    """
    conversation = converse(
        access, namespace=namespace, name=name, container=container, command=command, stdin=bool(text)
    )
    try:
        async with asyncio.timeout(TIMEOUT), conversation as running:
            if text:
                await running.send(text)
            async with contextlib.aclosing(running.printed()) as printed:
                async for _ in printed:
                    pass
    except TimeoutError as error:
        raise errors.KubeUnavailable(f"cannot run a command in pod {name}: no answer") from error


async def stream(
    access: kubeconfig.Access, *, namespace: str, name: str, container: str, command: Sequence[str]
) -> AsyncGenerator[Output, None]:
    """What the command prints, until it has succeeded; errors as `run` has them."""
    conversation = converse(
        access, namespace=namespace, name=name, container=container, command=command, stdin=False
    )
    async with conversation as running, contextlib.aclosing(running.printed()) as printed:
        async for output in printed:
            yield output


@dataclasses.dataclass(frozen=True)
class Conversation:
    """A running command: its output by channel, and its standard input."""

    pod: str
    _connection: wsproto.WSConnection
    _writer: asyncio.StreamWriter
    _messages: AsyncIterator[Output]

    async def printed(self) -> AsyncGenerator[Output, None]:
        """What the command prints, until it has succeeded; errors as `run` has them."""
        status = ExecStatus()
        with _as_unavailable(self.pod):
            async for channel, data in self._messages:
                if channel == ERROR_CHANNEL:
                    status = codec.decode(data, ExecStatus)
                    break
                yield channel, data
        if not status.status:
            raise errors.KubeUnavailable("the API closed the connection without a result")
        if status.status != "Success":
            reason = status.message or "no reason given"
            raise errors.KubeError(f"a command in pod {self.pod} failed: {reason}")

    async def send(self, data: bytes) -> None:
        """Write to the command's standard input, waiting while it reads nothing. No bytes keep a silent
        connection open: servers close one after hours without data.
        """
        with _as_unavailable(self.pod):
            for start in range(0, len(data) or 1, LARGEST_INPUT):
                message = bytes((STDIN_CHANNEL,)) + data[start : start + LARGEST_INPUT]
                self._writer.write(self._connection.send(events.BytesMessage(message)))
                await self._writer.drain()


@contextlib.asynccontextmanager
async def converse(
    access: kubeconfig.Access,
    *,
    namespace: str,
    name: str,
    container: str,
    command: Sequence[str],
    stdin: bool = True,
) -> AsyncIterator[Conversation]:
    """Start a command with which to exchange data; it goes on when the conversation is left."""
    query = [("container", container), ("stdout", "true"), ("stderr", "true")]
    query += [("stdin", "true")] if stdin else []
    query += [("command", word) for word in command]
    path = kinds.PODS.path(namespace=namespace, name=name, sub="exec")
    async with contextlib.AsyncExitStack() as stack:
        with _as_unavailable(name):
            target = f"{path}?{urllib.parse.urlencode(query)}"
            reader, writer, connection = await stack.enter_async_context(_connected(access, target))
            incoming = _events(connection, reader, writer)
            await _accepted(incoming)
        yield Conversation(name, connection, writer, _by_channel(incoming))


@contextlib.contextmanager
def _as_unavailable(pod: str) -> Iterator[None]:
    """Errors of the connection as KubeUnavailable."""
    try:
        yield
    except (OSError, TimeoutError, wsproto.utilities.ProtocolError) as error:
        words = str(error) or "no answer"
        raise errors.KubeUnavailable(f"cannot run a command in pod {pod}: {words}") from error


@contextlib.asynccontextmanager
async def _connected(
    access: kubeconfig.Access, target: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, wsproto.WSConnection]]:
    """A connection on which the upgrade has been requested."""
    address = addresses.parse(access.server)
    async with asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=access.tls)
    for option in KEEP_ASKING:
        writer.get_extra_info("socket").setsockopt(*option)
    try:
        connection = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        token = access.bearer
        headers = [(b"Authorization", f"Bearer {token}".encode())] if token else []
        request = events.Request(
            host=address.authority,
            target=address.prefix + target,
            subprotocols=[PROTOCOL],
            extra_headers=headers,
        )
        writer.write(connection.send(request))
        yield reader, writer, connection
    finally:
        writer.transport.abort()  # all is said; a polite end of TLS would outlive a caller's event loop


async def _events(
    connection: wsproto.WSConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[events.Event]:
    """A command may be silent for hours; whether it is run at all is said at once."""
    until: float | None = asyncio.get_running_loop().time() + TIMEOUT
    while True:
        async with asyncio.timeout_at(until):
            data = await reader.read(65536)
        connection.receive_data(data or None)
        for event in connection.events():
            if isinstance(event, events.AcceptConnection):
                until = None
            yield event
            if isinstance(event, events.Ping):
                writer.write(connection.send(event.response()))
        if not data:
            return


async def _accepted(stream: AsyncIterator[events.Event]) -> None:
    """Wait until the server runs the command; one that refuses the upgrade says why in plain HTTP."""
    refusal, code = b"", 0
    async for event in stream:
        if isinstance(event, events.AcceptConnection):
            return
        if isinstance(event, events.RejectConnection):
            code = event.status_code
        elif isinstance(event, events.RejectData):
            refusal += event.data
            if event.body_finished:
                break
    if code:
        apierrors.raise_for(refusal, code)
    raise errors.KubeUnavailable("the API closed the connection without a result")


async def _by_channel(stream: AsyncIterator[events.Event]) -> AsyncIterator[Output]:
    """Whole messages."""
    message = bytearray()
    async for event in stream:
        if isinstance(event, events.BytesMessage):
            message += event.data
            if event.message_finished:
                if len(message) > 1:
                    yield message[0], bytes(message[1:])
                message.clear()
        elif isinstance(event, events.CloseConnection):
            break
