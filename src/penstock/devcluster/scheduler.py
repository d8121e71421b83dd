"""The default scheduler: first node that fits; pods that name another scheduler are not ours."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.devcluster import kinds, nodes, times
from penstock.devcluster.events import Events
from penstock.devcluster.nodes import Ledger
from penstock.devcluster.objects import Objects
from penstock.devcluster.statuses import Json
from penstock.devcluster.store import Change, Entry

NAME: Final = "default-scheduler"
_TERMINAL: Final = ("Succeeded", "Failed")


class Scheduler:
    """Looks at the waiting pods whenever a pod or a node changed, once per turn of the event loop."""

    def __init__(self, objects: Objects, events: Events) -> None:
        self._objects = objects
        self._events = events
        self._store = objects.store
        self._ledger = Ledger()
        self._waiting: dict[str, Entry] = {}
        self._planned = False

    def start(self) -> None:
        self._store.listen(kinds.PODS, self._on_pod)
        self._store.listen(kinds.NODES, lambda change: self._plan())

    def _on_pod(self, change: Change) -> None:
        pod = change.entry
        spec, status = pod.obj["spec"], pod.obj["status"]
        over = change.type == "DELETED" or status.get("phase") in _TERMINAL
        self._waiting.pop(pod.uid, None)
        if spec.get("nodeName"):
            self._keep_books(pod, over=over)
        elif not over and spec["schedulerName"] == NAME and not spec.get("schedulingGates"):
            self._waiting[pod.uid] = pod
            self._plan()

    def _keep_books(self, pod: Entry, *, over: bool) -> None:
        node = pod.obj["spec"]["nodeName"]
        if over:
            self._ledger.release(node, pod.uid)
            self._plan()
        else:
            self._ledger.book(node, pod.obj)

    def _plan(self) -> None:
        if self._waiting and not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._planned = False
        known = [entry.obj for entry in self._store.all(kinds.NODES)]
        for pod in list(self._waiting.values()):
            self._place(pod, known)

    def _place(self, pod: Entry, known: list[Json]) -> None:
        if "deletionTimestamp" in pod.obj["metadata"]:
            return
        problems = {node["metadata"]["name"]: self._problem(pod.obj, node) for node in known}
        fitting = [name for name, problem in problems.items() if not problem]
        if fitting:
            self._objects.bind(pod, fitting[0])
            message = f"Successfully assigned {'/'.join(pod.key)} to {fitting[0]}"
            self._events.record(pod, "Scheduled", message, component=NAME)
        else:
            self._refuse(pod, f"0/{len(known)} nodes are available: {_counted(list(problems.values()))}.")

    def _problem(self, pod: Json, node: Json) -> str:
        """Why the pod cannot go to this node, or nothing."""
        if node["spec"].get("unschedulable"):
            return "node(s) were unschedulable"
        if not nodes.selects(pod, node):
            return "node(s) didn't match Pod's node affinity/selector"
        if not all(_tolerates(pod, taint) for taint in node["spec"].get("taints") or ()):
            return "node(s) had untolerated taint"
        if not any(
            one["type"] == "Ready" and one["status"] == "True"
            for one in node["status"].get("conditions") or ()
        ):
            return "node(s) were not ready"
        missing = self._ledger.missing(node, pod)
        return f"Insufficient {missing[0]}" if missing else ""

    def _refuse(self, pod: Entry, message: str) -> None:
        """Say once why the pod waits; Karpenter and its like act on exactly this condition."""
        conditions = pod.copy()["status"].get("conditions") or []
        others = [one for one in conditions if one["type"] != "PodScheduled"]
        if any(one.get("message") == message for one in conditions):
            return
        refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        refusal |= {"lastProbeTime": None, "lastTransitionTime": times.now()}  # type: ignore[dict-item]  # null, as kubelet
        self._objects.set_status(kinds.PODS, pod, {**pod.obj["status"], "conditions": [refusal, *others]})
        self._events.record(pod, "FailedScheduling", message, component=NAME, warning=True)


def _tolerates(pod: Json, taint: Json) -> bool:
    if taint.get("effect") not in ("NoSchedule", "NoExecute"):
        return True
    for one in pod["spec"].get("tolerations") or ():
        key_fits = one.get("key") in (None, "", taint["key"])
        value_fits = one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", "")
        if key_fits and value_fits and one.get("effect") in (None, "", taint["effect"]):
            return True
    return False


def _counted(problems: list[str]) -> str:
    return (
        ", ".join(f"{problems.count(problem)} {problem}" for problem in sorted(set(problems))) or "no nodes"
    )
