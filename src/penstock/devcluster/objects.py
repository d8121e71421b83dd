"""What create, update, delete and bind mean: metadata, optimistic concurrency, finalizers, grace.

The API handlers, the scheduler and the agents all write through here, so that a rule holds for everybody.
"""

from __future__ import annotations

import dataclasses
import secrets
import string
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from penstock.devcluster import defaults, kinds, quota, statuses, times, validation
from penstock.devcluster.kinds import Kind
from penstock.devcluster.statuses import Json
from penstock.devcluster.store import Entry, Store

PROTECTED_NAMESPACES: Final = ("default", "kube-system")
_BINDING: Final = dataclasses.replace(kinds.PODS, plural="pods/binding")  # how refusals of a binding name it
FOREGROUND: Final = "foregroundDeletion"
_SUFFIX_LETTERS: Final = string.ascii_lowercase + string.digits
_KEPT_METADATA: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """What a client may say about a deletion; None means not said."""

    grace: int | None = None
    uid: str | None = None
    version: str | None = None
    propagation: str = "Background"


NOW: Final = DeleteOptions(grace=0)


class Objects:
    """The store with Kubernetes' rules around it."""

    def __init__(self, store: Store, *, holds_deletion: Callable[[Json], bool]) -> None:
        self.store = store
        self._holds_deletion = holds_deletion

    def get(self, kind: Kind, namespace: str, name: str) -> Entry:
        entry = self.store.get(kind, namespace, name)
        if entry is None:
            raise statuses.not_found(kind, name)
        return entry

    def create(self, kind: Kind, namespace: str, obj: Json, *, dry_run: bool = False) -> Entry:
        metadata = obj.setdefault("metadata", {})
        self._place(kind, namespace, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + "".join(
                secrets.choice(_SUFFIX_LETTERS) for _ in range(5)
            )
        defaults.apply(kind, obj, self.store)
        validation.check(kind, obj)
        if self.store.get(kind, namespace, metadata["name"]):
            raise statuses.already_exists(kind, metadata["name"])
        quota.admit(self.store, kind, obj)
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
            metadata.pop(field, None)
        metadata.update(uid=str(uuid.uuid4()), creationTimestamp=times.now(), generation=1)
        return self._write(kind, obj, dry_run=dry_run)

    def _place(self, kind: Kind, namespace: str, metadata: Json) -> None:
        if not kind.namespaced:
            metadata.pop("namespace", None)
            return
        metadata["namespace"] = metadata.get("namespace") or namespace
        if metadata["namespace"] != namespace:
            raise statuses.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        home = self.get(kinds.NAMESPACES, "", namespace)
        if "deletionTimestamp" in home.obj["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise statuses.forbidden(kind, metadata.get("name", ""), why)

    def _write(self, kind: Kind, obj: Json, *, dry_run: bool = False) -> Entry:
        if dry_run:
            return Entry(kind, obj, msgspec.json.encode(obj), self.store.version)
        return self.store.put(kind, obj)

    def update(
        self, kind: Kind, entry: Entry, obj: Json, *, subresource: str = "", dry_run: bool = False
    ) -> Entry:
        """Replace an object (or only its status); an update that changes nothing makes no new version."""
        old, name = entry.obj, entry.key[1]
        obj.update(apiVersion=kind.api_version, kind=kind.kind)
        metadata = obj.setdefault("metadata", {})
        if metadata.get("resourceVersion") not in (None, "", str(entry.version)):
            raise statuses.modified(kind, name)
        if metadata.get("uid") not in (None, "", entry.uid):
            raise statuses.precondition(kind, name, "UID", metadata["uid"], entry.uid)
        _keep(
            old,
            obj,
            subresource="status" if subresource == "status" else "",
            split="status" in kind.subresources,
        )
        defaults.convert(kind, obj)
        validation.check_update(kind, old, obj)
        if self._is_finished(obj):
            return self._remove(entry, obj) if not dry_run else entry
        if obj == old:
            return entry
        if obj.get("spec") != old.get("spec"):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        return self._write(kind, obj, dry_run=dry_run)

    def _is_finished(self, obj: Json) -> bool:
        """Deleted before, waiting for nothing but finalizers, and these are gone now."""
        metadata = obj["metadata"]
        waiting = metadata.get("finalizers") or (obj["kind"] == "Namespace" and obj["spec"].get("finalizers"))
        return (
            "deletionTimestamp" in metadata
            and metadata.get("deletionGracePeriodSeconds") == 0
            and not waiting
        )

    def set_status(self, kind: Kind, entry: Entry, status: Json) -> Entry:
        obj = entry.copy()
        obj["status"] = status
        return self.update(kind, entry, obj, subresource="status")

    def delete(self, kind: Kind, entry: Entry, options: DeleteOptions) -> Entry:
        """Remove the object, or mark it when somebody (node, finalizer) still has to agree."""
        self._check_preconditions(kind, entry, options)
        if kind is kinds.NAMESPACES:
            return self._end_namespace(entry)
        grace = self._grace(entry, options) if kind is kinds.PODS else 0
        metadata = entry.obj["metadata"]
        finalizers = list(metadata.get("finalizers") or ())
        if options.propagation == "Foreground" and FOREGROUND not in finalizers:
            finalizers.append(FOREGROUND)
        if grace == 0 and not finalizers:
            return self._remove(entry)
        if metadata.get("deletionGracePeriodSeconds", grace + 1) <= grace:
            return entry
        obj = entry.copy()
        obj["metadata"].update(deletionTimestamp=times.now(grace), deletionGracePeriodSeconds=grace)
        if finalizers:
            obj["metadata"]["finalizers"] = finalizers
        return self.store.put(kind, obj)

    def _check_preconditions(self, kind: Kind, entry: Entry, options: DeleteOptions) -> None:
        for label, wanted, found in (
            ("UID", options.uid, entry.uid),
            ("ResourceVersion", options.version, str(entry.version)),
        ):
            if wanted and wanted != found:
                why = (
                    f"Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {found}"
                )
                raise statuses.conflict(kind, entry.key[1], why)

    def _grace(self, entry: Entry, options: DeleteOptions) -> int:
        """Seconds a pod gets; none when no process can be running for it."""
        spec, phase = entry.obj["spec"], entry.obj["status"].get("phase")
        wanted = options.grace if options.grace is not None else int(spec["terminationGracePeriodSeconds"])
        over = not spec.get("nodeName") or phase in ("Succeeded", "Failed")
        return 0 if over and not self._holds_deletion(entry.obj) else max(wanted, 0)

    def _remove(self, entry: Entry, final: Json | None = None) -> Entry:
        if final is not None and final != entry.obj:
            self.store.put(entry.kind, final)
        return self.store.remove(entry.kind, *entry.key)

    def _end_namespace(self, entry: Entry) -> Entry:
        """The collector empties it and then takes the last finalizer away."""
        name = entry.key[1]
        if name in PROTECTED_NAMESPACES:
            raise statuses.forbidden(kinds.NAMESPACES, name, "this namespace may not be deleted")
        if "deletionTimestamp" in entry.obj["metadata"]:
            return entry
        obj = entry.copy()
        obj["metadata"].update(deletionTimestamp=times.now(), deletionGracePeriodSeconds=0)
        obj["status"] = {"phase": "Terminating"}
        return self.store.put(kinds.NAMESPACES, obj)

    def bind(self, entry: Entry, node: str, *, uid: str | None = None, dry_run: bool = False) -> Entry:
        """Give an unbound pod its node: the decision that is never taken back."""
        name, metadata = entry.key[1], entry.obj["metadata"]
        bound = entry.obj["spec"].get("nodeName")
        if bound:
            raise statuses.conflict(_BINDING, name, f'pod {name} is already assigned to node "{bound}"')
        if uid and uid != entry.uid:
            raise statuses.precondition(_BINDING, name, "UID", uid, entry.uid)
        if "deletionTimestamp" in metadata:
            raise statuses.conflict(
                _BINDING, name, f"pod {name} is being deleted, cannot be assigned to a host"
            )
        if entry.obj["spec"].get("schedulingGates"):
            raise statuses.conflict(_BINDING, name, f"pod {name} has non-empty .spec.schedulingGates")
        obj = entry.copy()
        obj["spec"]["nodeName"] = node
        others = [one for one in obj["status"].get("conditions") or () if one["type"] != "PodScheduled"]
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": times.now(),
        }
        obj["status"]["conditions"] = [scheduled, *others]
        return self._write(kinds.PODS, obj, dry_run=dry_run)


def _keep(old: Json, obj: Json, *, subresource: str, split: bool) -> None:
    """Take over what this request may not change."""
    metadata = obj["metadata"]
    if subresource == "status":
        status = obj.get("status")
        obj.clear()
        obj.update(old, metadata=metadata, status=status if status is not None else {})
        metadata["ownerReferences"] = old["metadata"].get("ownerReferences")
        metadata["finalizers"] = old["metadata"].get("finalizers")
    elif split and "status" in old:
        obj["status"] = old["status"]
    for field in (*_KEPT_METADATA, "name", "namespace"):
        metadata[field] = old["metadata"].get(field)
    metadata.pop("managedFields", None)
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
    for field in [field for field, value in metadata.items() if value is None]:
        del metadata[field]
