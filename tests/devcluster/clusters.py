"""A dev cluster inside the test process, and a plain HTTP client for it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec

from penstock import errors
from penstock_lab.devcluster import apirequests, app
from penstock_lab.devcluster.nodeobjects import NodeSpec
from penstock_lab.devcluster.statuses import Json

TWO_NODES: Final = (
    NodeSpec("n1", cpus=8, memory_mb=32768, gpus=4),
    NodeSpec("n2", cpus=8, memory_mb=32768, gpus=4),
)
_PATIENCE: Final = 60.0
"""Reached only in failures; generous, since the machine may be busy."""


@dataclass(frozen=True, slots=True)
class Running:
    """The cluster's address and tokens."""

    url: str
    token: str
    viewer_token: str
    data_dir: Path

    def client(self, token: str | None = None, *, namespace: str = "default") -> Client:
        return Client(self.url, self.token if token is None else token, namespace)


class Client:
    """A plain HTTP client; returns complete responses, including errors."""

    def __init__(self, url: str, token: str, namespace: str) -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.http = httpx2.Client(base_url=url, headers=headers, timeout=_PATIENCE)
        self.namespace = namespace

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *why: object) -> None:
        self.http.close()

    def path(self, plural: str, name: str = "") -> str:
        """The path in this client's namespace; plural may be `apps/v1/deployments`."""
        group, _, word = plural.rpartition("/")
        base = f"/apis/{group}" if group else "/api/v1"
        return f"{base}/namespaces/{self.namespace}/{word}" + (f"/{name}" if name else "")

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> Json:
        """The decoded response; an error is a Status with its code."""
        content = msgspec.json.encode(body) if body is not None else None
        headers = {"content-type": more.pop("content_type", "application/json"), **more.pop("headers", {})}
        answer = self.http.request(method, path, content=content, headers=headers, params=more)
        decoded: Json = msgspec.json.decode(answer.content)
        return decoded

    def create(self, plural: str, obj: Json, **more: Any) -> Json:
        return self.call("POST", self.path(plural), obj, **more)

    def get(self, plural: str, name: str = "", **more: Any) -> Json:
        return self.call("GET", self.path(plural, name), **more)

    def delete(self, plural: str, name: str, options: Json | None = None, **more: Any) -> Json:
        return self.call("DELETE", self.path(plural, name), options, **more)

    def patch(self, plural: str, name: str, patch: Any, kind: str = "merge", **more: Any) -> Json:
        """kind: merge, strategic-merge, json or apply."""
        content_type = "application/apply-patch+yaml" if kind == "apply" else f"application/{kind}-patch+json"
        return self.call("PATCH", self.path(plural, name), patch, content_type=content_type, **more)

    def log(self, name: str, **more: Any) -> str:
        return self.http.get(self.path("pods", f"{name}/log"), params=more).text

    def until(
        self, ready: Callable[[Json], Any], plural: str, name: str, *, patience: float = _PATIENCE
    ) -> Json:
        """Poll until the object is as wanted; the failure has the last response."""
        end = time.monotonic() + patience
        while True:
            found = self.get(plural, name)
            if ready(found):
                return found
            if time.monotonic() > end:
                raise AssertionError(f"{plural} {name} did not get there: {found}")
            time.sleep(0.02)

    def phase(self, name: str, *phases: str, patience: float = _PATIENCE) -> Json:
        """Wait until the pod is in one of these phases."""
        return self.until(
            lambda pod: pod.get("status", {}).get("phase") in phases, "pods", name, patience=patience
        )

    def gone(self, name: str, *, patience: float = _PATIENCE) -> Json:
        return self.until(lambda pod: pod.get("code") == 404, "pods", name, patience=patience)


def pod(name: str, *command: str, **spec: Any) -> Json:
    """A pod of one container that runs this command once; container= gives more fields of the container."""
    container = {
        "name": "c",
        "image": "any",
        "command": list(command or ("true",)),
        **spec.pop("container", {}),
    }
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serve(nodes: Sequence[NodeSpec] = TWO_NODES, *, backoff: float = 0.2) -> Iterator[Running]:
    """Run a cluster in a thread, over plain HTTP, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="penstock-devcluster-") as directory:
        data_dir, port = Path(directory), free_port()
        tokens = {
            "test-admin": apirequests.Identity("admin", "admin"),
            "test-viewer": apirequests.Identity("viewer", "viewer"),
        }
        settings = app.Settings(data_dir, port, tokens, list(nodes), backoff=backoff)
        thread = _Thread(settings)
        thread.start()
        try:
            thread.wait_ready()
            yield Running(f"http://127.0.0.1:{port}", "test-admin", "test-viewer", data_dir)
        finally:
            thread.end()


class _Thread(threading.Thread):
    """The cluster's event loop; its exceptions are raised in the test."""

    def __init__(self, settings: app.Settings) -> None:
        super().__init__(name="devcluster", daemon=True)
        self._settings = settings
        self._ready = threading.Event()
        self._tell_to_stop: Callable[[], object] = lambda: None
        self._problem: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as problem:  # noqa: BLE001  raised again in the test's own thread
            self._problem = problem
        finally:
            self._ready.set()

    async def _main(self) -> None:
        cluster = app.Cluster(self._settings)
        loop = asyncio.get_running_loop()
        self._tell_to_stop = lambda: loop.call_soon_threadsafe(cluster.stop)
        running = asyncio.create_task(cluster.run())
        ready = asyncio.create_task(cluster.ready())
        await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        self._ready.set()
        await running

    def wait_ready(self) -> None:
        if not self._ready.wait(_PATIENCE) or self._problem:
            raise errors.LabError(
                "the dev cluster did not start", hint=str(self._problem or "")
            ) from self._problem

    def end(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself: the reason is raised below
            self._tell_to_stop()
        self.join(_PATIENCE)
        if self._problem:
            raise self._problem
        if self.is_alive():
            raise errors.LabError("the dev cluster did not stop")
