"""Create, update, delete and bind: metadata, optimistic concurrency, finalizers, grace periods.

API handlers, scheduler and agents all write through here, so the rules hold for all of them.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import string
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from penstock_lab.devcluster import apiadmission, kindtable, quotas, statuses
from penstock_lab.devcluster.kindtable import Kind
from penstock_lab.devcluster.objectstore import Entry, Key, Store, now
from penstock_lab.devcluster.statuses import Json

PROTECTED_NAMESPACES: Final = ("default", "kube-system")
_BINDING: Final = dataclasses.replace(
    kindtable.PODS, plural="pods/binding"
)  # how refusals of a binding name it
_LETTERS: Final = string.ascii_lowercase + string.digits
_DELETION: Final = ("deletionTimestamp", "deletionGracePeriodSeconds")
_KEPT: Final = ("name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion", *_DELETION)
_EVENTS: Final = 2000
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """A client's options; None means unset."""

    grace: int | None = None
    uid: str | None = None
    version: str | None = None


_NOW: Final = DeleteOptions(grace=0)


class Objects:
    """The store with Kubernetes' rules."""

    def __init__(self, store: Store, *, holds_deletion: Callable[[Json], bool]) -> None:
        self.store = store
        self._holds_deletion = holds_deletion
        self._events: deque[Key] = deque()

    def get(self, kind: Kind, namespace: str, name: str) -> Entry:
        entry = self.store.get(kind, namespace, name)
        if entry is None:
            raise statuses.not_found(kind, name)
        return entry

    def create(self, kind: Kind, namespace: str, obj: Json, *, dry_run: bool = False) -> Entry:
        metadata = obj.setdefault("metadata", {})
        self._place(kind, namespace, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + "".join(secrets.choice(_LETTERS) for _ in range(5))
        apiadmission.fill_in(kind, obj, self.store)
        apiadmission.check(kind, obj)
        if self.store.get(kind, namespace, metadata["name"]):
            raise statuses.already_exists(kind, metadata["name"])
        quotas.check_quota(self.store, kind, obj)
        for field in (*_DELETION, "managedFields"):
            metadata.pop(field, None)
        metadata.update(uid=str(uuid.uuid4()), creationTimestamp=now(), generation=1)
        return self._write(kind, obj, dry_run)

    def _place(self, kind: Kind, namespace: str, metadata: Json) -> None:
        if not kind.namespaced:
            metadata.pop("namespace", None)
            return
        metadata["namespace"] = metadata.get("namespace") or namespace
        if metadata["namespace"] != namespace:
            raise statuses.bad_request("the namespace of the object does not match that of the request")
        if self.get(kindtable.NAMESPACES, "", namespace).is_going:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise statuses.forbidden(kind, metadata.get("name", ""), why)

    def _write(self, kind: Kind, obj: Json, dry_run: bool) -> Entry:
        if dry_run:
            return Entry(kind, obj, msgspec.json.encode(obj), self.store.version)
        return self.store.put(kind, obj)

    def update(self, entry: Entry, obj: Json, *, subresource: str = "", dry_run: bool = False) -> Entry:
        """Replace an object (or only its status); an update without changes makes no new version."""
        kind, old = entry.kind, entry.obj
        metadata = obj.setdefault("metadata", {})
        if metadata.get("resourceVersion") not in (None, "", str(entry.version)):
            why = (
                "the object has been modified; please apply your changes to the latest version and try again"
            )
            raise statuses.conflict(kind, entry.key[1], why)
        _check_precondition(kind, entry, "UID", metadata.get("uid"), entry.uid)
        obj.update(apiVersion=kind.api_version, kind=kind.kind)
        _keep(old, obj, is_status=subresource == "status", split="status" in kind.subresources)
        apiadmission.convert(kind, obj)
        apiadmission.check_update(kind, old, obj)
        if _is_finished(obj):
            return self._remove(entry, obj) if not dry_run else entry
        if obj == old:
            return entry
        if obj.get("spec") != old.get("spec"):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        return self._write(kind, obj, dry_run)

    def set_status(self, entry: Entry, status: Json) -> Entry:
        return self.update(entry, {**entry.copy(), "status": status}, subresource="status")

    def set_condition(self, entry: Entry, condition: Json) -> Entry:
        """Replace the condition of this type."""
        return self.set_status(entry, _with_condition(entry.copy().get("status") or {}, condition))

    def delete(self, entry: Entry, options: DeleteOptions = _NOW) -> Entry:
        """Remove the object, or mark it for deletion if its node or a finalizer must act first."""
        kind, metadata = entry.kind, entry.obj["metadata"]
        _check_precondition(kind, entry, "UID", options.uid, entry.uid)
        _check_precondition(kind, entry, "ResourceVersion", options.version, str(entry.version))
        if kind is kindtable.NAMESPACES and entry.key[1] in PROTECTED_NAMESPACES:
            raise statuses.forbidden(kind, entry.key[1], "this namespace may not be deleted")
        grace = self._grace(entry, options) if kind is kindtable.PODS else 0
        if grace == 0 and not metadata.get("finalizers") and kind is not kindtable.NAMESPACES:
            return self._remove(entry)
        if metadata.get("deletionGracePeriodSeconds", grace + 1) <= grace:
            return entry
        obj = entry.copy()
        obj["metadata"].update(deletionTimestamp=now(grace), deletionGracePeriodSeconds=grace)
        if kind is kindtable.NAMESPACES:  # the garbage collector empties it, then removes the last finalizer
            obj["status"] = {"phase": "Terminating"}
        return self.store.put(kind, obj)

    def _grace(self, entry: Entry, options: DeleteOptions) -> int:
        """A pod's grace period in seconds; 0 if it cannot have processes."""
        spec, phase = entry.obj["spec"], entry.obj["status"].get("phase")
        wanted = options.grace if options.grace is not None else int(spec["terminationGracePeriodSeconds"])
        over = not spec.get("nodeName") or phase in quotas.TERMINAL
        return 0 if over and not self._holds_deletion(entry.obj) else max(wanted, 0)

    def _remove(self, entry: Entry, final: Json | None = None) -> Entry:
        if final is not None and final != entry.obj:
            self.store.put(entry.kind, final)
        return self.store.remove(entry.kind, *entry.key)

    def bind(self, entry: Entry, node: str, *, uid: str | None = None, dry_run: bool = False) -> Entry:
        """Assign an unbound pod to a node, permanently."""
        name, bound = entry.key[1], entry.obj["spec"].get("nodeName")
        if bound:
            raise statuses.conflict(_BINDING, name, f'pod {name} is already assigned to node "{bound}"')
        _check_precondition(_BINDING, entry, "UID", uid, entry.uid)
        if entry.is_going:
            why = f"pod {name} is being deleted, cannot be assigned to a host"
            raise statuses.conflict(_BINDING, name, why)
        obj = entry.copy()
        obj["spec"]["nodeName"] = node
        obj["status"] = _with_condition(obj["status"], {"type": "PodScheduled", "status": "True"})
        return self._write(kindtable.PODS, obj, dry_run)

    def event(self, about: Entry, reason: str, message: str, *, source: str, warning: bool = False) -> None:
        """Record an event; repeated events are counted, and the oldest are removed."""
        namespace, name = about.key
        home = self.store.get(kindtable.NAMESPACES, "", namespace)
        if home is None or home.is_going:
            return  # creation in it is forbidden
        word = f"{name}.{about.uid[:8]}{hash((reason, message)) % 2**32:08x}"
        known = self.store.get(kindtable.EVENTS, namespace, word)
        if known:
            again = {**known.copy(), "count": known.obj["count"] + 1, "lastTimestamp": now()}
            self.update(known, again)
            return
        involved = {"kind": about.kind.kind, "apiVersion": about.kind.api_version}
        obj = {
            "metadata": {"name": word},
            "involvedObject": {**involved, "namespace": namespace, "name": name, "uid": about.uid},
            "reason": reason,
            "message": message,
            "type": "Warning" if warning else "Normal",
            "count": 1,
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "eventTime": None,
            "source": {"component": source},
            "reportingComponent": source,
            "reportingInstance": "",
        }
        try:
            self._events.append(self.create(kindtable.EVENTS, namespace, obj).key)
        except statuses.ApiError as refusal:  # refused by a quota, or the name is too long
            _logger.warning("event %s of %s is lost: %s", reason, about.key, refusal.message)
        if len(self._events) > _EVENTS:
            oldest = self.store.get(kindtable.EVENTS, *self._events.popleft())
            if oldest:
                self.delete(oldest)


def _with_condition(status: Json, condition: Json) -> Json:
    others = [one for one in status.get("conditions") or () if one["type"] != condition["type"]]
    moved = {"lastProbeTime": None, "lastTransitionTime": now(), **condition}
    return {**status, "conditions": [moved, *others]}


def _check_precondition(kind: Kind, entry: Entry, what: str, wanted: str | None, found: str) -> None:
    if wanted and wanted != found:
        why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
        raise statuses.conflict(kind, entry.key[1], why)


def _is_finished(obj: Json) -> bool:
    """Whether the object was deleted and its last finalizer is now removed."""
    metadata = obj["metadata"]
    waiting = metadata.get("finalizers") or (obj["kind"] == "Namespace" and obj["spec"].get("finalizers"))
    return metadata.get("deletionGracePeriodSeconds") == 0 and not waiting


def _keep(old: Json, obj: Json, *, is_status: bool, split: bool) -> None:
    """Restore the fields that this request may not change."""
    metadata, before = obj["metadata"], old["metadata"]
    if is_status:
        status = obj.get("status") or {}
        obj.clear()
        obj.update(old, metadata=metadata, status=status)
    elif split and "status" in old:
        obj["status"] = old["status"]
    for field in (*_KEPT, *(("ownerReferences", "finalizers") if is_status else ())):
        metadata[field] = before.get(field)
    metadata.pop("managedFields", None)
    for field in [field for field, value in metadata.items() if value is None]:
        del metadata[field]
