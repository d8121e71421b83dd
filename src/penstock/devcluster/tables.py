"""Table answers, which `kubectl get` prints: columns for the usual kinds, name and age for the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.devcluster import kinds, times
from penstock.devcluster.kinds import Kind
from penstock.devcluster.statuses import Json
from penstock.devcluster.store import Entry

_Cells = Callable[[Json], list[Any]]
_Columns = tuple[tuple[str, int], ...]  # name and priority: 1 is shown by -o wide only


def is_wanted(accept: str) -> bool:
    return "as=Table" in accept


def age(obj: Json) -> str:
    """How kubectl shortens a duration."""
    seconds = max(0, int(time.time() - times.parse(obj["metadata"]["creationTimestamp"])))
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 3600:
        minutes, rest = divmod(seconds, 60)
        return f"{minutes}m{rest}s" if minutes < 10 and rest else f"{minutes}m"
    hours = seconds // 3600
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


def _init_word(pod: Json) -> str:
    """What an init container has to say while it is in the way, or nothing."""
    found = pod["status"].get("initContainerStatuses") or []
    for number, one in enumerate(found):
        ended, waiting = one["state"].get("terminated"), one["state"].get("waiting") or {}
        if ended and ended["exitCode"] == 0:
            continue
        if ended:
            return f"Init:{ended.get('reason') or 'ExitCode:' + str(ended['exitCode'])}"
        if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            return f"Init:{waiting['reason']}"
        return f"Init:{number}/{len(found)}"
    return ""


def pod_word(pod: Json) -> str:
    """The STATUS column, worked out as kubectl's printer does."""
    status = pod["status"]
    word = str(status.get("reason") or status.get("phase") or "Unknown")
    started = _init_word(pod)
    running = False
    for one in reversed(status.get("containerStatuses") or []) if not started else ():
        ended, waiting = one["state"].get("terminated"), one["state"].get("waiting") or {}
        if waiting.get("reason"):
            word = waiting["reason"]
        elif ended:
            word = ended.get("reason") or f"ExitCode:{ended['exitCode']}"
        running = running or "running" in one["state"]
    if word == "Completed" and running:
        word = "Running"
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    return started or word


def _pod(pod: Json) -> list[Any]:
    found = pod["status"].get("containerStatuses") or []
    ready = f"{sum(bool(one['ready']) for one in found)}/{len(pod['spec']['containers'])}"
    restarts = sum(one["restartCount"] for one in found)
    where = [
        pod["status"].get("podIP") or "<none>",
        pod["spec"].get("nodeName") or "<none>",
        "<none>",
        "<none>",
    ]
    return [pod["metadata"]["name"], ready, pod_word(pod), str(restarts), age(pod), *where]


def _node(node: Json) -> list[Any]:
    ready = [one["status"] for one in node["status"].get("conditions") or () if one["type"] == "Ready"]
    word = "Ready" if ready == ["True"] else "NotReady"
    word += ",SchedulingDisabled" if node["spec"].get("unschedulable") else ""
    info = node["status"].get("nodeInfo") or {}
    wide = [
        "127.0.0.1",
        "<none>",
        info.get("osImage"),
        info.get("kernelVersion"),
        info.get("containerRuntimeVersion"),
    ]
    return [node["metadata"]["name"], word, "<none>", age(node), info.get("kubeletVersion"), *wide]


def _event(event: Json) -> list[Any]:
    about = event.get("involvedObject") or {}
    subject = f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"
    return [age(event), event.get("type"), event.get("reason"), subject, event.get("message")]


def _shown(*names: str, wide: tuple[str, ...] = ()) -> _Columns:
    return (*((name, 0) for name in names), *((name, 1) for name in wide))


_TABLES: Final[dict[Kind, tuple[_Columns, _Cells]]] = {
    kinds.PODS: (
        _shown(
            "Name",
            "Ready",
            "Status",
            "Restarts",
            "Age",
            wide=("IP", "Node", "Nominated Node", "Readiness Gates"),
        ),
        _pod,
    ),
    kinds.NODES: (
        _shown(
            *("Name", "Status", "Roles", "Age", "Version"),
            wide=("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        ),
        _node,
    ),
    kinds.NAMESPACES: (
        _shown("Name", "Status", "Age"),
        lambda obj: [obj["metadata"]["name"], obj["status"]["phase"], age(obj)],
    ),
    kinds.EVENTS: (_shown("Last Seen", "Type", "Reason", "Object", "Message"), _event),
}
_GENERIC: Final[tuple[_Columns, _Cells]] = (
    _shown("Name", "Age"),
    lambda obj: [obj["metadata"]["name"], age(obj)],
)


def of(kind: Kind, entries: list[Entry], version: str, metadata: Json | None = None) -> Json:
    """A Table of these objects."""
    columns, cells = _TABLES.get(kind, _GENERIC)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata or {"resourceVersion": version},
        "columnDefinitions": [_definition(name, priority) for name, priority in columns],
        "rows": [_row(entry, cells) for entry in entries],
    }


def _definition(name: str, priority: int) -> Json:
    kind = "name" if name == "Name" else ""
    return {"name": name, "type": "string", "format": kind, "description": name, "priority": priority}


def _row(entry: Entry, cells: _Cells) -> Json:
    metadata = {key: value for key, value in entry.obj["metadata"].items() if key != "managedFields"}
    reference = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return {"cells": cells(entry.obj), "object": reference}


def row_of(entry: Entry) -> bytes:
    """One object as a Table, for watches."""
    return msgspec.json.encode(of(entry.kind, [entry], str(entry.version)))
