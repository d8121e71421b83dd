"""Commands in containers: `pods/exec` over a WebSocket, for signals and for output that is fetched.

The API server speaks channels: the first byte of a message says which stream it belongs to. We send nothing,
take what the command prints, and learn how it ended from a Status object that the server sends on the error
channel just before it closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import msgspec
import wsproto
from wsproto import events

from penstock import errors
from penstock.kube import addresses, apierrors, codec, kinds, kubeconfig

PROTOCOL = "v4.channel.k8s.io"
ERROR_CHANNEL = 3
TIMEOUT = 10.0
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
    access: kubeconfig.Access, *, namespace: str, name: str, container: str, command: Sequence[str]
) -> None:
    """Returns when the command has succeeded; KubeError when it failed, KubeUnavailable when nobody knows."""
    printed = stream(access, namespace=namespace, name=name, container=container, command=command)
    try:
        async with asyncio.timeout(TIMEOUT), contextlib.aclosing(printed):
            async for _ in printed:
                pass
    except TimeoutError as error:
        raise errors.KubeUnavailable(f"cannot run a command in pod {name}: no answer") from error


async def stream(
    access: kubeconfig.Access, *, namespace: str, name: str, container: str, command: Sequence[str]
) -> AsyncGenerator[Output, None]:
    """What the command prints, until it has succeeded; errors as `run` has them."""
    query = [("container", container), ("stdout", "true"), ("stderr", "true")]
    query += [("command", word) for word in command]
    path = kinds.PODS.path(namespace=namespace, name=name, sub="exec")
    status = ExecStatus()
    try:
        async with _messages(access, f"{path}?{urllib.parse.urlencode(query)}") as messages:
            async for channel, data in messages:
                if channel == ERROR_CHANNEL:
                    status = codec.decode(data, ExecStatus)
                    break
                yield channel, data
    except (OSError, TimeoutError, wsproto.utilities.ProtocolError) as error:
        raise errors.KubeUnavailable(f"cannot run a command in pod {name}: {_words(error)}") from error
    if not status.status:
        raise errors.KubeUnavailable("the API closed the connection without a result")
    if status.status != "Success":
        raise errors.KubeError(f"a command in pod {name} failed: {status.message or 'no reason given'}")


def _words(error: Exception) -> str:
    return str(error) or "no answer"


@contextlib.asynccontextmanager
async def _messages(access: kubeconfig.Access, target: str) -> AsyncIterator[AsyncIterator[Output]]:
    """A connection, and what comes over it by channel."""
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
        yield _by_channel(_events(connection, reader, writer))
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


async def _by_channel(stream: AsyncIterator[events.Event]) -> AsyncIterator[Output]:
    """Whole messages; a server that refuses the upgrade says why in plain HTTP."""
    message, refusal, code = bytearray(), b"", 0
    async for event in stream:
        if isinstance(event, events.BytesMessage):
            message += event.data
            if event.message_finished:
                if len(message) > 1:
                    yield message[0], bytes(message[1:])
                message.clear()
        elif isinstance(event, events.RejectConnection):
            code = event.status_code
        elif isinstance(event, events.RejectData):
            refusal += event.data
            if event.body_finished:
                break
        elif isinstance(event, events.CloseConnection):
            break
    if code:
        apierrors.raise_for(refusal, code)
