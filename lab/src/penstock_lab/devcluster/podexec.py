"""pods/exec over a WebSocket: a command in a running container, its output by channel, then how it ended.

Without a terminal: enough for `kubectl exec -i POD -- COMMAND`, signals and conversations.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from penstock_lab.devcluster import statuses
from penstock_lab.devcluster.agent import Agents
from penstock_lab.devcluster.objectstore import Entry
from penstock_lab.devcluster.statuses import Json

_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN: Final = 0
_HALF_CLOSE: Final = 255  # v5: the next byte names a channel that the client has closed
_NSENTER, _SETPRIV = (os.path.realpath(shutil.which(name) or name) for name in ("nsenter", "setpriv"))
"""Not by the pod's PATH, and no links: a pod sees /usr, but not every folder of links to it."""


async def serve(socket: WebSocket, pod: Entry, agents: Agents) -> None:
    """One command; who may ask has been checked."""
    container = socket.query_params.get("container") or pod.obj["spec"]["containers"][0]["name"]
    pid = agents.pid_of(pod.uid, container)
    try:
        way, variables = _entering(pid or 0)
    except (ProcessLookupError, FileNotFoundError):  # it may end at any moment
        raise statuses.ApiError(500, "InternalError", f'container not found ("{container}")') from None
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(subprotocol=next((one for one in _PROTOCOLS if one in offered), None))
    with contextlib.suppress(WebSocketDisconnect):  # nobody is left to be told
        result = await _run(socket, [*way, *socket.query_params.getlist("command")], variables)
        await socket.send_bytes(b"\3" + msgspec.json.encode(result))
        await socket.close()


def _entering(pid: int) -> tuple[list[str], dict[str, str]]:
    """The way into a container's namespaces, root, directory, user and groups; and its environment."""
    about = Path(f"/proc/{pid}")
    (about / "ns" / "mnt").readlink()  # a process that has ended has none, although it may still be listed
    lines = (about / "status").read_text(encoding="utf-8").split("\n")
    ids = {name: ids.split() for name, _, ids in (line.partition(":") for line in lines)}
    groups = [f"--groups={','.join(ids['Groups'])}" if ids["Groups"] else "--clear-groups"]
    user = [_SETPRIV, f"--reuid={ids['Uid'][0]}", f"--regid={ids['Gid'][0]}", *groups, "--no-new-privs", "--"]
    entries = (about / "environ").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    variables = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    places = ["--target", str(pid), "--mount", "--pid", "--uts", "--root", "--wd", "--"]
    return [_NSENTER, *places, *user], variables


async def _run(socket: WebSocket, command: list[str], variables: dict[str, str]) -> Json:
    pipe = asyncio.subprocess.PIPE
    has_input = socket.query_params.get("stdin") in ("true", "1")
    source = pipe if has_input else asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, env=variables, stdin=source, stdout=pipe, stderr=pipe
    )
    listening = asyncio.create_task(_listen(process, socket))
    try:
        await asyncio.gather(_pass_on(process.stdout, socket, b"\1"), _pass_on(process.stderr, socket, b"\2"))
        return _result(await process.wait())
    finally:
        listening.cancel()


async def _listen(process: asyncio.subprocess.Process, socket: WebSocket) -> None:
    """Pass the client's input on. When it leaves, the command's pipes are closed: it goes on, as long as it
    prints nothing.
    """
    try:
        while (message := await socket.receive())["type"] != "websocket.disconnect":
            await _feed(process.stdin, message.get("bytes") or b"")
    finally:
        process._transport.close()  # type: ignore[attr-defined]  # there is no other way to close them


async def _feed(sink: asyncio.StreamWriter | None, message: bytes) -> None:
    if sink is None:
        return
    if message[:2] == bytes((_HALF_CLOSE, _STDIN)):
        sink.close()
    elif message[:1] == bytes((_STDIN,)):
        sink.write(message[1:])
        with contextlib.suppress(ConnectionError):  # the command has closed its input
            await sink.drain()


async def _pass_on(source: asyncio.StreamReader | None, socket: WebSocket, channel: bytes) -> None:
    while source and (chunk := await source.read(65536)):
        await socket.send_bytes(channel + chunk)


def _result(code: int) -> Json:
    """A negative code is a signal, as when the container's end takes the command along."""
    if code == 0:
        return {**statuses.STATUS, "status": "Success"}
    code = 128 - code if code < 0 else code
    message = f"command terminated with non-zero exit code: exit status {code}"
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return statuses.ApiError(500, "NonZeroExitCode", message, {"causes": causes}).body()
