"""Garbage collection: dependents, contents of namespaces, pods of lost nodes.

Acts shortly after a change, never within it, so all listeners see the same order of events. Also updates the
status of quotas, and serves the kinds of custom resource definitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from penstock_lab.devcluster import kindtable, quotas
from penstock_lab.devcluster.kindtable import Kind, Registry
from penstock_lab.devcluster.objects import DeleteOptions, Objects
from penstock_lab.devcluster.objectstore import Change, Entry

ORPHAN_DELAY: Final = 3.0


class Collector:
    def __init__(self, objects: Objects, registry: Registry) -> None:
        self._objects = objects
        self._store = objects.store
        self._registry = registry
        self._dependents: dict[str, set[tuple[Kind, str, str]]] = {}
        self._alive: set[str] = set()
        self._dirty_quotas: set[str] = set()
        self._store.listen(None, self._on_change)

    def _soon(self, action: Callable[..., None], *about: Any, delay: float = 0) -> None:
        asyncio.get_running_loop().call_later(delay, action, *about)

    def _on_change(self, change: Change) -> None:
        entry = change.entry
        self._index(change)
        if change.type == "DELETED":
            self._after_removal(entry)
        elif entry.is_going and entry.kind is kindtable.NAMESPACES:
            self._soon(self._empty, entry.key[1])
        elif _owners(entry):
            self._soon(self._delete_if_orphan, entry.kind, *entry.key)
        if entry.kind is kindtable.DEFINITIONS and change.type != "DELETED":
            self._registry.define(entry.obj)
        node = entry.obj["spec"].get("nodeName") if entry.kind is kindtable.PODS else None
        if node and self._store.get(kindtable.NODES, "", node) is None:
            self._soon(self._delete_lost, node, delay=ORPHAN_DELAY)
        self._touch_quotas(entry.key[0], entry.kind, change)

    def _index(self, change: Change) -> None:
        address = (change.entry.kind, *change.entry.key)
        for owner in _owners(change.before) if change.before else ():
            self._dependents.get(owner, set()).discard(address)
        if change.type == "DELETED":
            self._alive.discard(change.entry.uid)
            return
        self._alive.add(change.entry.uid)
        for owner in _owners(change.entry):
            self._dependents.setdefault(owner, set()).add(address)

    def _after_removal(self, entry: Entry) -> None:
        for address in self._dependents.pop(entry.uid, set()):
            self._soon(self._delete_if_orphan, *address)
        if entry.key[0]:
            self._soon(self._empty, entry.key[0])
        if entry.kind is kindtable.NODES:
            self._soon(self._delete_lost, entry.key[1], delay=ORPHAN_DELAY)
        if entry.kind is kindtable.DEFINITIONS:
            self._soon(self._undefine, entry)

    def _undefine(self, definition: Entry) -> None:
        for kind in kindtable.described(definition.obj):
            self._registry.pop((kind.group, kind.version, kind.plural), None)
            for entry in self._store.all(kind):
                self._store.remove(kind, *entry.key)

    def _delete_if_orphan(self, kind: Kind, namespace: str, name: str) -> None:
        entry = self._store.get(kind, namespace, name)
        if entry and _owners(entry) and not self._alive.intersection(_owners(entry)):
            self._objects.delete(entry, DeleteOptions())

    def _empty(self, name: str) -> None:
        """Delete the content of a terminating namespace, then its finalizer."""
        namespace = self._store.get(kindtable.NAMESPACES, "", name)
        if namespace is None or not namespace.is_going:
            return
        content = [entry for entry in self._store.everything() if entry.key[0] == name]
        for entry in content:
            if not entry.is_going:
                self._objects.delete(entry, DeleteOptions())
        if not content:
            self._objects.update(namespace, {**namespace.copy(), "spec": {"finalizers": []}})

    def _delete_lost(self, node: str) -> None:
        """Delete the pods of a node that no longer exists."""
        lost = self._store.get(kindtable.NODES, "", node) is None
        for pod in self._store.all(kindtable.PODS) if lost else ():
            if pod.obj["spec"].get("nodeName") == node:
                self._objects.delete(pod)

    def _touch_quotas(self, namespace: str, kind: Kind, change: Change) -> None:
        counts = change.type != "MODIFIED" or kind in (kindtable.PODS, kindtable.QUOTAS)
        if namespace and counts and namespace not in self._dirty_quotas:
            self._dirty_quotas.add(namespace)
            self._soon(self._update_quotas, namespace)

    def _update_quotas(self, namespace: str) -> None:
        self._dirty_quotas.discard(namespace)
        for entry in self._store.all(kindtable.QUOTAS, namespace):
            self._objects.set_status(entry, quotas.quota_status(self._store, entry.obj))


def _owners(entry: Entry) -> list[str]:
    return [str(reference["uid"]) for reference in entry.obj["metadata"].get("ownerReferences") or ()]
