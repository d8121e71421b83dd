"""pods/exec over a WebSocket: a command in a running container, its output by channel, then how it ended.

No terminal and no standard input: enough for `kubectl exec POD -- COMMAND` and for passing signals on.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec
from starlette.websockets import WebSocket

from penstock.devcluster import statuses
from penstock.devcluster.agent import Agents
from penstock.devcluster.statuses import Json
from penstock.devcluster.store import Entry

_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")


async def serve(socket: WebSocket, pod: Entry, agents: Agents) -> None:
    """One command; who may ask has been checked."""
    container = socket.query_params.get("container") or pod.obj["spec"]["containers"][0]["name"]
    pid = agents.pid_of(pod.uid, container)
    try:
        way, variables = _entering(pid or 0)
    except (ProcessLookupError, FileNotFoundError):  # it may end at any moment
        why = f"container {container} of pod {pod.key[1]} is not running"
        raise statuses.bad_request(why) from None
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(subprotocol=next((one for one in _PROTOCOLS if one in offered), None))
    result = await _run(socket, [*way, *socket.query_params.getlist("command")], variables)
    await socket.send_bytes(b"\3" + msgspec.json.encode(result))
    await socket.close()


def _entering(pid: int) -> tuple[list[str], dict[str, str]]:
    """The way into a container's namespaces, root, directory and user; and its environment."""
    about = Path(f"/proc/{pid}")
    words = (line.split() for line in (about / "status").read_text(encoding="utf-8").splitlines())
    ids = {word[0]: word[1] for word in words if word[0] in ("Uid:", "Gid:")}
    entries = (about / "environ").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    places = ["--mount", "--pid", "--uts", "--root", "--wd", "--setgid", ids["Gid:"], "--setuid", ids["Uid:"]]
    variables = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    return ["nsenter", "--target", str(pid), *places, "--"], variables


async def _run(socket: WebSocket, command: list[str], variables: dict[str, str]) -> Json:
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, env=variables, stdin=nothing, stdout=pipe, stderr=pipe
    )
    try:
        await asyncio.gather(_pass_on(process.stdout, socket, b"\1"), _pass_on(process.stderr, socket, b"\2"))
        return _result(await process.wait())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _pass_on(source: asyncio.StreamReader | None, socket: WebSocket, channel: bytes) -> None:
    while source and (chunk := await source.read(65536)):
        await socket.send_bytes(channel + chunk)


def _result(code: int) -> Json:
    if code == 0:
        return {**statuses.STATUS, "status": "Success"}
    message = f"command terminated with non-zero exit code: exit status {code}"
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return statuses.ApiError(500, "NonZeroExitCode", message, {"causes": causes}).body()
