"""Fake cluster that answers request by request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import msgspec

from penstock.install import kubeadmin
from penstock.kube import client, kinds

T = TypeVar("T")
Manifest = dict[str, Any]


class Cluster(kubeadmin.Cluster):
    """Subclasses override `request`, which stands for the API."""

    def request(self, method: str, path: str, *, body: Any = None) -> Manifest:
        raise NotImplementedError

    def ask(self, question: Callable[[client.KubeClient], Awaitable[T]]) -> T:
        async def answer() -> T:
            return await question(cast(client.KubeClient, Verbs(self)))

        return asyncio.run(answer())


class Verbs:
    """The client's methods as requests."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def get(self, kind: kinds.Kind, **place: Any) -> bytes:
        return msgspec.json.encode(self._cluster.request("GET", kind.path(**place)))

    async def list(self, kind: kinds.Kind, *, namespace: str = "", **selectors: Any) -> bytes:
        found = self._cluster.request("GET", kind.path(namespace=namespace))
        return msgspec.json.encode({"metadata": {}} | found)

    async def create(self, kind: kinds.Kind, manifest: Manifest, **place: Any) -> bytes:
        path = kind.path(**place)
        return msgspec.json.encode(self._cluster.request("POST", path, body=manifest))

    async def apply(self, kind: kinds.Kind, manifest: Manifest, *, namespace: str = "", **how: Any) -> bytes:
        path = kind.path(namespace=namespace, name=manifest["metadata"]["name"])
        return msgspec.json.encode(self._cluster.request("PATCH", path, body=manifest))

    async def delete(self, kind: kinds.Kind, *, name: str, namespace: str = "", **how: Any) -> None:
        self._cluster.request("DELETE", kind.path(namespace=namespace, name=name))
