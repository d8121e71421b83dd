"""The default scheduler: first fit; pods with another schedulerName are ignored."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock_lab.devcluster import kindtable, nodeobjects, quotas
from penstock_lab.devcluster.objects import Objects
from penstock_lab.devcluster.objectstore import Change, Entry
from penstock_lab.devcluster.statuses import Json

NAME: Final = "default-scheduler"


class Scheduler:
    """Schedules pending pods after changes of pods or nodes, once per iteration of the event loop."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._store = objects.store
        self._bound: dict[str, dict[str, quotas.Amounts]] = {}  # by node and uid
        self._waiting: dict[str, Entry] = {}
        self._planned = False
        self._store.listen(kindtable.PODS, self._on_pod)
        self._store.listen(kindtable.NODES, lambda change: self._plan())

    def _on_pod(self, change: Change) -> None:
        pod, spec = change.entry, change.entry.obj["spec"]
        over = change.type == "DELETED" or pod.obj["status"].get("phase") in quotas.TERMINAL
        self._waiting.pop(pod.uid, None)
        if spec.get("nodeName"):
            books = self._bound.setdefault(spec["nodeName"], {})
            if over:
                books.pop(pod.uid, None)
            elif pod.uid not in books:
                books[pod.uid] = quotas.claims(pod.obj)
        elif not over and not pod.is_going and spec["schedulerName"] == NAME:
            self._waiting[pod.uid] = pod
        self._plan()

    def _plan(self) -> None:
        if self._waiting and not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._planned = False
        known = [entry.obj for entry in self._store.all(kindtable.NODES)]
        for pod in list(self._waiting.values()):
            problems = {node["metadata"]["name"]: self._problem(pod.obj, node) for node in known}
            fitting = [name for name, problem in problems.items() if not problem]
            if fitting:
                self._objects.bind(pod, fitting[0])
                message = f"Successfully assigned {'/'.join(pod.key)} to {fitting[0]}"
                self._objects.event(pod, "Scheduled", message, source=NAME)
            else:
                self._refuse(pod, list(problems.values()))

    def _problem(self, pod: Json, node: Json) -> str:
        """Why the pod does not fit this node; empty if it does."""
        if node["spec"].get("unschedulable"):
            return "node(s) were unschedulable"
        if not selects(pod, node):
            return "node(s) didn't match Pod's node affinity/selector"
        if not all(_tolerates(pod, taint) for taint in node["spec"].get("taints") or ()):
            return "node(s) had untolerated taint"
        if not nodeobjects.is_ready(node):
            return "node(s) were not ready"
        taken = quotas.add(self._bound.get(node["metadata"]["name"], {}).values())
        missing = quotas.shortage(node, pod, taken)
        return f"Insufficient {missing[0]}" if missing else ""

    def _refuse(self, pod: Entry, problems: list[str]) -> None:
        """Set the PodScheduled condition, on which autoscalers such as Karpenter act, if it changes."""
        counted = ", ".join(f"{problems.count(one)} {one}" for one in sorted(set(problems))) or "no nodes"
        message = f"0/{len(problems)} nodes are available: {counted}."
        refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        if not any(one.get("message") == message for one in pod.obj["status"].get("conditions") or ()):
            self._objects.set_condition(pod, refusal)
            self._objects.event(pod, "FailedScheduling", message, source=NAME, warning=True)


def selects(pod: Json, node: Json) -> bool:
    labels = node["metadata"].get("labels") or {}
    return bool((pod["spec"].get("nodeSelector") or {}).items() <= labels.items())


def _tolerates(pod: Json, taint: Json) -> bool:
    if taint.get("effect") not in ("NoSchedule", "NoExecute"):
        return True
    for one in pod["spec"].get("tolerations") or ():
        key_fits = one.get("key") in (None, "", taint["key"])
        value_fits = one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", "")
        if key_fits and value_fits and one.get("effect") in (None, "", taint["effect"]):
            return True
    return False
