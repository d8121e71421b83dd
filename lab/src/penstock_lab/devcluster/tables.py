"""Table responses for `kubectl get`: columns for the usual kinds, name and age for the rest."""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from starlette.requests import Request

from penstock_lab.devcluster import kindtable, nodeobjects
from penstock_lab.devcluster.kindtable import Kind
from penstock_lab.devcluster.objectstore import Entry
from penstock_lab.devcluster.statuses import Json

_Columns = dict[str, Callable[[Json], Any]]


def is_wanted(request: Request) -> bool:
    return "as=Table" in request.headers.get("accept", "")


def age(obj: Json) -> str:
    """The object's age as kubectl prints it."""
    born = calendar.timegm(time.strptime(obj["metadata"]["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ"))
    seconds = max(0, int(time.time() - born))
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 3600:
        minutes, rest = divmod(seconds, 60)
        return f"{minutes}m{rest}s" if minutes < 10 and rest else f"{minutes}m"
    hours = seconds // 3600
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


def pod_word(pod: Json) -> str:
    """The STATUS column, as kubectl prints it."""
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    init = pod["status"].get("initContainerStatuses") or []
    done = sum((one["state"].get("terminated") or {}).get("exitCode") == 0 for one in init)
    if done < len(init):
        ended, waiting = init[done]["state"].get("terminated"), init[done]["state"].get("waiting") or {}
        reason = ended["reason"] if ended else waiting.get("reason")
        return f"Init:{reason}" if reason not in (None, "ContainerCreating") else f"Init:{done}/{len(init)}"
    word = str(pod["status"].get("reason") or pod["status"].get("phase") or "Unknown")
    states = [one["state"] for one in reversed(pod["status"].get("containerStatuses") or ())]
    for state in states:
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if waiting.get("reason"):
            word = waiting["reason"]
        elif ended:
            word = ended.get("reason") or f"ExitCode:{ended['exitCode']}"
    return "Running" if word == "Completed" and any("running" in state for state in states) else word


def _ready(pod: Json) -> str:
    found = pod["status"].get("containerStatuses") or []
    return f"{sum(bool(one['ready']) for one in found)}/{len(pod['spec']['containers'])}"


def _restarts(pod: Json) -> str:
    return str(sum(one["restartCount"] for one in pod["status"].get("containerStatuses") or ()))


def _node_word(node: Json) -> str:
    cordon = ",SchedulingDisabled" if node["spec"].get("unschedulable") else ""
    return ("Ready" if nodeobjects.is_ready(node) else "NotReady") + cordon


def _at(*path: str) -> Callable[[Json], Any]:

    def read(obj: Json) -> Any:
        value: Any = obj
        for name in path:
            value = (value or {}).get(name)
        return value or "<none>"

    return read


_NAME: Final[_Columns] = {"Name": _at("metadata", "name")}
_TABLES: Final[dict[Kind, _Columns]] = {
    kindtable.PODS: {
        **_NAME,
        "Ready": _ready,
        "Status": pod_word,
        "Restarts": _restarts,
        "Age": age,
        "IP": _at("status", "podIP"),
        "Node": _at("spec", "nodeName"),
    },
    kindtable.NODES: {
        **_NAME,
        "Status": _node_word,
        "Roles": _at("role"),
        "Age": age,
        "Version": _at("status", "nodeInfo", "kubeletVersion"),
    },
    kindtable.NAMESPACES: {**_NAME, "Status": _at("status", "phase"), "Age": age},
    kindtable.EVENTS: {
        "Last Seen": age,
        "Type": _at("type"),
        "Reason": _at("reason"),
        "Object": _at("involvedObject", "name"),
        "Message": _at("message"),
    },
}
_WIDE: Final = ("IP", "Node")


def table(kind: Kind, entries: list[Entry], metadata: Json | None = None) -> Json:
    columns = _TABLES.get(kind, {**_NAME, "Age": age})
    shown = [
        {"name": name, "type": "string", "format": "", "description": name, "priority": int(name in _WIDE)}
        for name in columns
    ]
    api = {"apiVersion": "meta.k8s.io/v1"}
    rows = []
    for entry in entries:
        about = {"kind": "PartialObjectMetadata", **api, "metadata": entry.obj["metadata"]}
        rows.append({"cells": [read(entry.obj) for read in columns.values()], "object": about})
    metadata = metadata or {"resourceVersion": str(entries[0].version)}
    return {"kind": "Table", **api, "metadata": metadata, "columnDefinitions": shown, "rows": rows}


def row_of(entry: Entry) -> bytes:
    """An object as a Table, for watches."""
    return msgspec.json.encode(table(entry.kind, [entry]))
