"""Runs one short command in a container: `pods/exec` over a WebSocket, which is all that signals need.

The API server speaks channels: the first byte of a message says which stream it belongs to. We send nothing
and want to know only whether the command succeeded, which the server tells on the error channel as a Status
object just before it closes.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import AsyncIterator, Sequence

import msgspec
import wsproto
from wsproto import events

from penstock import errors
from penstock.kube import kubeconfig, paths, refusals

PROTOCOL = "v4.channel.k8s.io"
ERROR_CHANNEL = 3
TIMEOUT = 10.0


class ExecStatus(msgspec.Struct, frozen=True):
    """How the command ended."""

    status: str = ""
    message: str = ""


async def run(
    access: kubeconfig.Access, *, namespace: str, name: str, container: str, command: Sequence[str]
) -> None:
    """Returns when the command has succeeded; KubeError when it failed, KubeUnavailable when nobody knows."""
    query = [("container", container), ("stdout", "true"), ("stderr", "true")]
    query += [("command", word) for word in command]
    path = paths.path_of("pods", namespace=namespace, name=name, sub="exec")
    try:
        async with asyncio.timeout(TIMEOUT):
            result = await _converse(access, f"{path}?{urllib.parse.urlencode(query)}")
    except (OSError, TimeoutError, wsproto.utilities.ProtocolError) as error:
        raise errors.KubeUnavailable(f"cannot run a command in pod {name}: {error or 'no answer'}") from error
    if result.status != "Success":
        raise errors.KubeError(f"a command in pod {name} failed: {result.message or 'no reason given'}")


async def _converse(access: kubeconfig.Access, target: str) -> ExecStatus:
    address = urllib.parse.urlsplit(access.server)
    port = address.port or (443 if address.scheme == "https" else 80)
    reader, writer = await asyncio.open_connection(address.hostname, port, ssl=access.tls)
    try:
        connection = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        headers = [(b"Authorization", f"Bearer {access.token}".encode())] if access.token else []
        host = f"{address.hostname}:{port}"
        request = events.Request(host=host, target=target, subprotocols=[PROTOCOL], extra_headers=headers)
        writer.write(connection.send(request))
        return await _result(_events(connection, reader, writer))
    finally:
        writer.transport.abort()  # all is said; a polite end of TLS would outlive a caller's event loop


async def _events(
    connection: wsproto.WSConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[events.Event]:
    while True:
        data = await reader.read(65536)
        connection.receive_data(data or None)
        for event in connection.events():
            yield event
            if isinstance(event, events.Ping):
                writer.write(connection.send(event.response()))
        if not data:
            return


async def _result(stream: AsyncIterator[events.Event]) -> ExecStatus:
    """The Status from the error channel; a server that refuses the upgrade says why in plain HTTP."""
    body, code = b"", 0
    async for event in stream:
        if isinstance(event, events.BytesMessage) and event.data[:1] == bytes((ERROR_CHANNEL,)):
            return msgspec.json.decode(bytes(event.data[1:]), type=ExecStatus)
        if isinstance(event, events.RejectConnection):
            code = event.status_code
        elif isinstance(event, events.RejectData):
            body += event.data
            if event.body_finished:
                break
        elif isinstance(event, events.CloseConnection):
            break
    if code:
        refusals.raise_for(body, code)
    raise errors.KubeUnavailable("the API closed the connection without a result")
