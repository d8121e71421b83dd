"""A plain client of any Kubernetes API: returns complete responses, including errors."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from penstock.kube import kubeconfig

Json = dict[str, Any]
PATIENCE = 30.0
IMAGE = "lab/host-userland:1"


class Client:
    """Requests with one identity, in one namespace."""

    def __init__(self, config: Path, namespace: str) -> None:
        access = kubeconfig.load(config)
        headers = {"authorization": f"Bearer {access.token}"} if access.token else {}
        verify = access.tls if access.tls is not None else True
        self.http = httpx2.Client(
            base_url=access.server, headers=headers, verify=verify, timeout=30, trust_env=False
        )
        self.namespace = namespace

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *why: object) -> None:
        self.http.close()

    def path(self, plural: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        accept: str = "application/json",
        **query: Any,
    ) -> Json:
        """The decoded response; an error is a Status with its code."""
        content = msgspec.json.encode(body) if body is not None else None
        headers = {"content-type": kind, "accept": accept}
        answer = self.http.request(method, path, content=content, headers=headers, params=query)
        decoded: Json = msgspec.json.decode(answer.content)
        return decoded

    def create(self, plural: str, body: Json) -> Json:
        return self.call("POST", self.path(plural), body)

    def get(self, plural: str, name: str = "", **query: Any) -> Json:
        return self.call("GET", self.path(plural, name), **query)

    def delete(self, plural: str, name: str, options: Json | None = None) -> Json:
        return self.call("DELETE", self.path(plural, name), options)

    def apply(self, plural: str, name: str, body: Json, *, manager: str, force: bool = False) -> Json:
        query = {"fieldManager": manager, "force": str(force).lower()}
        return self.call("PATCH", self.path(plural, name), body, kind="application/apply-patch+yaml", **query)

    def bind(self, name: str, node: str) -> Json:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        return self.call("POST", self.path("pods", f"{name}/binding"), binding)

    def log(self, name: str, **query: Any) -> httpx2.Response:
        return self.http.get(self.path("pods", f"{name}/log"), params=query)

    @contextlib.contextmanager
    def follow(self, name: str) -> Iterator[httpx2.Response]:
        """The pod's log as it is written."""
        with self.http.stream("GET", self.path("pods", f"{name}/log"), params={"follow": "true"}) as answer:
            yield answer

    def watch(self, plural: str, *, version: str, seconds: int, **query: Any) -> Iterator[Json]:
        """Events until the server ends the watch; an error response also becomes an ERROR event."""
        params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(seconds), **query}
        with self.http.stream("GET", self.path(plural), params=params, timeout=seconds + 20) as answer:
            if answer.status_code >= 400:
                yield {"type": "ERROR", "object": msgspec.json.decode(answer.read())}
                return
            for line in answer.iter_lines():
                if line:
                    yield msgspec.json.decode(line)

    def until(
        self, ready: Callable[[Json], object], plural: str, name: str, *, patience: float = PATIENCE
    ) -> Json:
        """Poll until the object is as wanted; the failure has the last response."""
        end = time.monotonic() + patience
        while True:
            found = self.get(plural, name)
            if ready(found):
                return found
            assert time.monotonic() < end, f"{plural} {name} did not get there: {found}"
            time.sleep(0.05)

    def phase(self, name: str, *phases: str, patience: float = PATIENCE) -> Json:
        """Wait until the pod is in one of these phases."""
        return self.until(
            lambda pod: pod.get("status", {}).get("phase") in phases, "pods", name, patience=patience
        )

    def gone(self, plural: str, name: str, *, patience: float = PATIENCE) -> None:
        self.until(lambda found: found.get("code") == 404, plural, name, patience=patience)


def pod(name: str, *command: str, **spec: Any) -> Json:
    """A pod as penstockd would create it: it stays unscheduled until it is bound."""
    container = {
        "name": "job",
        "image": IMAGE,
        "command": list(command or ("/bin/true",)),
        **spec.pop("container", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": spec.pop("labels", {})},
        "spec": {
            "schedulerName": "penstock",
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 5,
            "containers": [container],
            **spec,
        },
    }


def shell(name: str, script: str, **spec: Any) -> Json:
    """A pod that runs a few lines of shell."""
    return pod(name, "/bin/sh", "-c", script, **spec)


def up_to_the_end(events: Iterator[Json]) -> Iterator[Json]:
    """Events of a watch until an object is gone."""
    for event in events:
        yield event
        if event["type"] == "DELETED":
            return


def terminated(found: Json) -> Json:
    """How the pod's container ended."""
    state: Json = found["status"]["containerStatuses"][0]["state"]["terminated"]
    return state
