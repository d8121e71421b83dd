"""A fake of the Kubernetes API."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from penstock import errors
from penstock.kube import kinds, types

HAS_NAMES = "[ -e /penstock-run/named ]"


class FakeConversation:
    """A conversation whose pod says nothing unless the test says it for the pod."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.says: asyncio.Queue[bytes | Exception] = asyncio.Queue()

    async def printed(self) -> AsyncGenerator[tuple[int, bytes], None]:
        while True:
            said = await self.says.get()
            if isinstance(said, Exception):
                raise said
            yield 1, said

    async def send(self, data: bytes) -> None:
        self.heard.put_nowait(data)


class FakeKube:
    """Objects in a dictionary; `calls` has all requests in order."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.refuse: dict[tuple[str, str], Exception] = {}
        self.logs: list[bytes] = []
        self.commands: list[tuple[str, ...]] = []
        self.printed: list[tuple[int, bytes]] = []
        self.conversation = FakeConversation()
        self.lists_nothing: set[str] = set()
        """Resources whose lists are lies."""
        self._uids = 0
        self.on_bind: Callable[[tuple[str, str, str]], None] = lambda key: None
        self.on_told: Callable[[tuple[str, str, str]], None] = lambda key: None
        """Called once for each pod that is told the gang's names; they are in its `hosts`."""

    def show(self, key: tuple[str, str, str], status: types.PodStatus) -> types.Pod:
        """Set the pod's status; returns the pod as the watch shows it."""
        self.objects[key]["status"] = msgspec.to_builtins(status)
        return msgspec.json.decode(msgspec.json.encode(self.objects[key]), type=types.Pod)

    def add_pod(self, found: types.Pod) -> None:
        body = msgspec.json.decode(msgspec.json.encode(found))
        self.objects["pods", found.metadata.namespace, found.metadata.name] = body

    def names(self, resource: str) -> Sequence[str]:
        return [name for kind, _, name in self.objects if kind == resource]

    def add_node(self, found: types.Node) -> None:
        self.objects["nodes", "", found.metadata.name] = msgspec.json.decode(msgspec.json.encode(found))

    def _note(self, verb: str, resource: str, name: str) -> None:
        self.calls.append((verb, resource, name))
        error = self.refuse.get((verb, resource))
        if error:
            raise error

    async def list(self, kind: kinds.Kind, **selectors: Any) -> bytes:
        resource = str(kind)
        self._note("get", resource, "")
        shown = () if resource in self.lists_nothing else self.objects.items()
        items = [obj for (of, _, _), obj in shown if of == resource]
        return msgspec.json.encode({"metadata": {}, "items": items})

    async def get(self, kind: kinds.Kind, *, name: str, namespace: str = "") -> bytes:
        resource = str(kind)
        self._note("get", resource, name)
        if (resource, namespace, name) not in self.objects:
            raise errors.KubeNotFound("not found", status=404)
        return msgspec.json.encode(self.objects[resource, namespace, name])

    async def create(
        self,
        kind: kinds.Kind,
        manifest: Mapping[str, Any],
        *,
        namespace: str = "",
        name: str = "",
        sub: kinds.Sub = "",
    ) -> bytes:
        resource = str(kind)
        self._note("bind" if sub == "binding" else "create", resource, manifest["metadata"]["name"])
        key = (resource, namespace, manifest["metadata"]["name"])
        if sub == "binding":
            self.objects[key]["spec"]["nodeName"] = manifest["target"]["name"]
            self.on_bind(key)
            return b"{}"
        if key in self.objects:
            raise errors.KubeConflict("already exists", status=409)
        self._uids += 1
        self.objects[key] = {**manifest, "metadata": {**manifest["metadata"], "uid": f"uid-{self._uids}"}}
        return msgspec.json.encode(self.objects[key])

    async def delete(
        self, kind: kinds.Kind, *, namespace: str, name: str, uid: str, grace: int | None = None
    ) -> None:
        resource = str(kind)
        self._note("delete", resource, name)
        found = self.objects.get((resource, namespace, name))
        if found is None:
            raise errors.KubeNotFound("not found", status=404)
        if found["metadata"]["uid"] != uid:
            raise errors.KubeConflict("another uid", status=409)
        del self.objects[resource, namespace, name]

    async def log(self, *, namespace: str, name: str, container: str) -> AsyncIterator[bytes]:
        self._note("log", "pods", name)
        for chunk in self.logs:
            yield chunk

    async def run(
        self, command: Sequence[str], *, namespace: str, name: str, container: str, text: bytes = b""
    ) -> None:
        self._note("run", "pods", name)
        self.commands.append(tuple(command))
        key = ("pods", namespace, name)
        if text and "hosts" not in self.objects[key]:
            self.objects[key]["hosts"] = (container, text.decode())
            self.on_told(key)
        if command[-1] == HAS_NAMES and "hosts" not in self.objects[key]:
            raise errors.KubeError("command terminated with non-zero exit code: exit status 1")

    async def stream(
        self, command: Sequence[str], *, namespace: str, name: str, container: str
    ) -> AsyncIterator[tuple[int, bytes]]:
        self._note("stream", "pods", name)
        self.commands.append(tuple(command))
        for one in self.printed:
            yield one

    @contextlib.asynccontextmanager
    async def converse(
        self, command: Sequence[str], *, namespace: str, name: str, container: str
    ) -> AsyncIterator[FakeConversation]:
        self._note("converse", "pods", name)
        yield self.conversation

    async def watch(self, kind: kinds.Kind, *, version: str, **_: Any) -> AsyncIterator[types.Event]:
        self._note("watch", str(kind), version)
        return
        yield
