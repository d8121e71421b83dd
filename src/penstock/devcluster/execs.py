"""pods/exec over a WebSocket: a command in a running container, its output by channel, then how it ended.

No terminal and no standard input: enough for `kubectl exec POD -- COMMAND` and for passing signals on.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec
from starlette.websockets import WebSocket

from penstock.devcluster import kinds, statuses
from penstock.devcluster.agent import Agents
from penstock.devcluster.objects import Objects
from penstock.devcluster.statuses import Json

PATH: Final = "/api/v1/namespaces/{namespace}/pods/{name}/exec"
_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_ERROR: Final = b"\3"


class Execs:
    """Runs commands in containers."""

    def __init__(self, objects: Objects, agents: Agents) -> None:
        self._objects = objects
        self._agents = agents

    async def serve(self, socket: WebSocket) -> None:
        """One command; who may ask has been checked."""
        namespace, name = socket.path_params["namespace"], socket.path_params["name"]
        entry = self._objects.get(kinds.PODS, namespace, name)
        container = socket.query_params.get("container") or entry.obj["spec"]["containers"][0]["name"]
        pid = self._agents.pid_of(entry.uid, container)
        try:
            if pid is None:
                raise ProcessLookupError
            way, variables = _entering(pid), _environment(pid)
        except (ProcessLookupError, FileNotFoundError):  # it may end at any moment
            raise statuses.bad_request(f"container {container} of pod {name} is not running") from None
        offered = socket.scope.get("subprotocols", [])
        await socket.accept(subprotocol=next((one for one in _PROTOCOLS if one in offered), None))
        command = [*way, *socket.query_params.getlist("command")]
        result = await self._run(socket, command, variables)
        await socket.send_bytes(_ERROR + msgspec.json.encode(result))
        await socket.close()

    async def _run(self, socket: WebSocket, command: list[str], variables: dict[str, str]) -> Json:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=variables,
        )
        assert process.stdout is not None and process.stderr is not None  # noqa: PT018, S101  both are pipes
        try:
            await asyncio.gather(
                _pass_on(process.stdout, socket, b"\1"), _pass_on(process.stderr, socket, b"\2")
            )
            return _result(await process.wait())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _entering(pid: int) -> list[str]:
    """Into the container's namespaces, root, directory and user."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    uid, gid = (
        next(line.split()[1] for line in status if line.startswith(name)) for name in ("Uid:", "Gid:")
    )
    places = ["--mount", "--pid", "--uts", "--root", "--wd"]
    return ["nsenter", "--target", str(pid), *places, "--setgid", gid, "--setuid", uid, "--"]


def _environment(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


async def _pass_on(source: asyncio.StreamReader, socket: WebSocket, channel: bytes) -> None:
    while chunk := await source.read(65536):
        await socket.send_bytes(channel + chunk)


def _result(code: int) -> Json:
    if code == 0:
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
