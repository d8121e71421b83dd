"""Removes what nothing needs any more: dependents, contents of namespaces, pods of lost nodes.

It hears of every change and acts a moment later, never inside the change itself, so that all listeners see
one order of events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.devcluster import kinds, quota
from penstock.devcluster.kinds import Kind, Registry
from penstock.devcluster.objects import FOREGROUND, NOW, DeleteOptions, Objects
from penstock.devcluster.store import Change, Entry

ORPHAN_DELAY: Final = 3.0
_Address = tuple[Kind, str, str]


class Collector:
    """Owner references, namespaces, lost pods, custom resource definitions, the used part of quotas."""

    def __init__(self, objects: Objects, registry: Registry) -> None:
        self._objects = objects
        self._store = objects.store
        self._registry = registry
        self._dependents: dict[str, set[_Address]] = {}
        self._alive: set[str] = set()
        self._dirty_quotas: set[str] = set()

    def start(self) -> None:
        self._store.listen(None, self._on_change)

    def _soon(self, action: Callable[[], None], delay: float = 0) -> None:
        asyncio.get_running_loop().call_later(delay, action)

    def _on_change(self, change: Change) -> None:
        entry = change.entry
        self._index(change)
        if change.type == "DELETED":
            self._after_removal(entry)
        elif "deletionTimestamp" in entry.obj["metadata"]:
            self._soon(lambda: self._help_to_end(entry.kind, *entry.key))
        elif change.type == "ADDED" and self._is_orphan(entry):
            self._soon(lambda: self._delete_if_orphan(entry.kind, *entry.key))
        if entry.kind is kinds.DEFINITIONS and change.type != "DELETED":
            self._registry.define(entry.obj)
        if entry.kind is kinds.PODS and self._lost_node(entry):
            self._soon(lambda: self._delete_lost(*entry.key, entry.uid), ORPHAN_DELAY)
        self._touch_quotas(change)

    def _index(self, change: Change) -> None:
        address = (change.entry.kind, *change.entry.key)
        for owner in _owners(change.before):
            self._dependents.get(owner, set()).discard(address)
        if change.type == "DELETED":
            self._alive.discard(change.entry.uid)
            return
        self._alive.add(change.entry.uid)
        for owner in _owners(change.entry):
            self._dependents.setdefault(owner, set()).add(address)

    def _after_removal(self, entry: Entry) -> None:
        dependents = self._dependents.pop(entry.uid, set())
        for address in dependents:
            self._soon(lambda address=address: self._delete_if_orphan(*address))  # type: ignore[misc]  # bound now
        for owner in _owners(entry):
            self._soon(lambda owner=owner: self._recheck_owner(owner, entry))  # type: ignore[misc]  # bound now
        namespace = entry.key[0]
        if namespace:
            self._soon(lambda: self._help_to_end(kinds.NAMESPACES, "", namespace))
        if entry.kind is kinds.NODES:
            self._soon(lambda: self._delete_all_lost(entry.key[1]), ORPHAN_DELAY)
        if entry.kind is kinds.DEFINITIONS:
            self._soon(lambda: self._undefine(entry))

    def _undefine(self, definition: Entry) -> None:
        for kind in self._registry.forget(definition.obj):
            for entry in self._store.all(kind):
                self._store.remove(kind, *entry.key)

    def _is_orphan(self, entry: Entry) -> bool:
        owners = _owners(entry)
        return bool(owners) and not any(owner in self._alive for owner in owners)

    def _delete_if_orphan(self, kind: Kind, namespace: str, name: str) -> None:
        entry = self._store.get(kind, namespace, name)
        if entry and self._is_orphan(entry):
            self._objects.delete(kind, entry, DeleteOptions())

    def _recheck_owner(self, uid: str, gone: Entry) -> None:
        for reference in gone.obj["metadata"].get("ownerReferences") or ():
            group, _, version = str(reference["apiVersion"]).rpartition("/")
            found = [
                kind
                for kind in self._registry
                if (kind.group, kind.version, kind.kind) == (group, version, reference["kind"])
            ]
            if reference["uid"] == uid and found:
                self._help_to_end(found[0], gone.key[0] if found[0].namespaced else "", reference["name"])

    def _help_to_end(self, kind: Kind, namespace: str, name: str) -> None:
        """Take the next step for an object that is being deleted."""
        entry = self._store.get(kind, namespace, name)
        if entry is None or "deletionTimestamp" not in entry.obj["metadata"]:
            return
        if kind is kinds.NAMESPACES:
            self._empty(entry)
        elif FOREGROUND in (entry.obj["metadata"].get("finalizers") or ()):
            self._delete_dependents_first(entry)

    def _empty(self, namespace: Entry) -> None:
        content = [entry for entry in self._store.everything() if entry.key[0] == namespace.key[1]]
        for entry in content:
            if "deletionTimestamp" not in entry.obj["metadata"]:
                self._objects.delete(entry.kind, entry, DeleteOptions())
        if not content:
            obj = namespace.copy()
            obj["spec"]["finalizers"] = []
            self._objects.update(kinds.NAMESPACES, namespace, obj, subresource="finalize")

    def _delete_dependents_first(self, owner: Entry) -> None:
        blocking = False
        for kind, namespace, name in list(self._dependents.get(owner.uid, ())):
            entry = self._objects.get(kind, namespace, name)
            blocking = blocking or _blocks(entry, owner.uid)
            if "deletionTimestamp" not in entry.obj["metadata"]:
                self._objects.delete(kind, entry, DeleteOptions(propagation="Foreground"))
        if not blocking:
            self._drop_finalizer(owner)

    def _drop_finalizer(self, entry: Entry) -> None:
        obj = entry.copy()
        obj["metadata"]["finalizers"] = [name for name in obj["metadata"]["finalizers"] if name != FOREGROUND]
        self._objects.update(entry.kind, entry, obj)

    def orphan(self, owner: Entry) -> None:
        """Cut the dependents loose before their owner goes."""
        for kind, namespace, name in list(self._dependents.get(owner.uid, ())):
            entry = self._objects.get(kind, namespace, name)
            obj = entry.copy()
            references = obj["metadata"]["ownerReferences"]
            obj["metadata"]["ownerReferences"] = [one for one in references if one["uid"] != owner.uid]
            self._objects.update(kind, entry, obj)

    def _lost_node(self, pod: Entry) -> bool:
        node = pod.obj["spec"].get("nodeName")
        return bool(node) and self._store.get(kinds.NODES, "", node) is None

    def _delete_all_lost(self, node: str) -> None:
        for pod in self._store.all(kinds.PODS):
            if pod.obj["spec"].get("nodeName") == node:
                self._delete_lost(*pod.key, pod.uid)

    def _delete_lost(self, namespace: str, name: str, uid: str) -> None:
        pod = self._store.get(kinds.PODS, namespace, name)
        if pod and pod.uid == uid and self._lost_node(pod):
            self._objects.delete(kinds.PODS, pod, NOW)

    def _touch_quotas(self, change: Change) -> None:
        namespace, kind = change.entry.key[0], change.entry.kind
        if not namespace or (kind is kinds.QUOTAS and change.type == "DELETED"):
            return
        if namespace not in self._dirty_quotas and (
            kind is kinds.QUOTAS or change.type != "MODIFIED" or kind is kinds.PODS
        ):
            self._dirty_quotas.add(namespace)
            self._soon(lambda: self._update_quotas(namespace))

    def _update_quotas(self, namespace: str) -> None:
        self._dirty_quotas.discard(namespace)
        for entry in self._store.all(kinds.QUOTAS, namespace):
            self._objects.set_status(kinds.QUOTAS, entry, quota.status_of(self._store, entry.obj))


def _owners(entry: Entry | None) -> list[str]:
    references = (entry.obj["metadata"].get("ownerReferences") or ()) if entry else ()
    return [str(reference["uid"]) for reference in references]


def _blocks(dependent: Entry, owner: str) -> bool:
    references = dependent.obj["metadata"].get("ownerReferences") or ()
    return any(one["uid"] == owner and one.get("blockOwnerDeletion") for one in references)
