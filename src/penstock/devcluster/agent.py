"""The agents of all nodes: give every bound pod a worker, speak for the nodes, and obey the faults."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.devcluster import children, kinds, nodes, podstatus, quantities, statuses
from penstock.devcluster.bell import Bell
from penstock.devcluster.cgroups import Cgroups
from penstock.devcluster.events import Events
from penstock.devcluster.faults import Faults
from penstock.devcluster.logs import Log
from penstock.devcluster.nodes import Ledger, NodeSpec
from penstock.devcluster.objects import NOW, DeleteOptions, Objects
from penstock.devcluster.statuses import Json
from penstock.devcluster.store import Change, Entry
from penstock.devcluster.worker import Worker

BACKOFF: Final = 10.0
_LAST_GRACE: Final = 2.0
_CAP_SYS_ADMIN: Final = 21
_TERMINAL: Final = ("Succeeded", "Failed")
_logger = logging.getLogger(__name__)


def may_isolate() -> bool:
    """Namespaces are for root, and in a container only for one that may do as it likes there."""
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return os.geteuid() == 0 and bool(effective & 1 << _CAP_SYS_ADMIN)


class Agents:
    """One object for the agents of all nodes; it is the Host of every worker."""

    def __init__(
        self,
        objects: Objects,
        faults: Faults,
        events: Events,
        specs: list[NodeSpec],
        data_dir: Path,
        *,
        backoff: float = BACKOFF,
    ) -> None:
        self.store = objects.store
        self.bell = Bell()
        self.isolate = may_isolate()
        self.backoff = backoff
        self._objects = objects
        self._faults = faults
        self._events = events
        self._specs = {spec.name: spec for spec in specs}
        self._directory = data_dir / "pods"
        children.end_leftovers(data_dir / "pids")
        shutil.rmtree(self._directory, ignore_errors=True)
        self.children = children.Children(data_dir / "pids")
        self.cgroups = Cgroups(data_dir)
        self._ledger = Ledger()
        self._gone: set[str] = set()
        self._workers: dict[str, Worker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Register the nodes and begin to listen."""
        for spec in self._specs.values():
            self._register(spec)
        self.store.listen(kinds.PODS, self._on_pod)
        for kind in (kinds.SECRETS, kinds.CONFIGMAPS):
            self.store.listen(kind, lambda change: self.bell.ring())
        self._faults.listen(self._on_faults)

    async def stop(self) -> None:
        """End every process; what does not go by itself is killed."""
        tasks = list(self._tasks.values())
        for uid, worker in self._workers.items():
            worker.close(_LAST_GRACE)
            if worker.state.over:
                self._tasks[uid].cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_LAST_GRACE + 1)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self.cgroups.remove_all()

    def pid_of(self, uid: str, container: str) -> int | None:
        """The first process of a running container, as this host numbers it."""
        worker = self._workers.get(uid)
        return worker.pids.get(container) if worker else None

    def log_of(self, uid: str, container: str, *, previous: bool) -> Log | None:
        """The log of the container's latest run, or of the one before; None when there was no such run."""
        worker = self._workers.get(uid)
        kept = worker.logs.get(container, []) if worker else []
        wanted = kept[:-1] if previous else kept
        return wanted[-1] if wanted else None

    def _on_pod(self, change: Change) -> None:
        pod = change.entry
        worker = self._workers.get(pod.uid)
        if change.type == "DELETED":
            if worker:
                self.release(pod.obj)
                worker.vanish()
        elif worker:
            worker.note(pod)
        elif (
            pod.obj["spec"].get("nodeName") in self._specs and pod.obj["status"].get("phase") not in _TERMINAL
        ):
            self._begin(pod)

    def _begin(self, pod: Entry) -> None:
        worker = Worker(self, pod, self._directory / pod.uid)
        task = asyncio.get_running_loop().create_task(worker.run(), name=f"pod {'/'.join(pod.key)}")
        self._workers[pod.uid], self._tasks[pod.uid] = worker, task
        task.add_done_callback(self._forgetter(pod.uid))

    def _forgetter(self, uid: str) -> Callable[[asyncio.Task[None]], None]:
        def forget(task: asyncio.Task[None]) -> None:
            del self._workers[uid], self._tasks[uid]
            if not task.cancelled() and task.exception():
                _logger.error("%s failed", task.get_name(), exc_info=task.exception())

        return forget

    def _register(self, spec: NodeSpec) -> None:
        if self.store.get(kinds.NODES, "", spec.name) is None:
            self._objects.create(kinds.NODES, "", nodes.node_object(spec))

    def _on_faults(self) -> None:
        """Bring the Node objects in line, then let every worker look again."""
        for spec in self._specs.values():
            self._obey_node_fault(spec)
        for worker in list(self._workers.values()):
            if self._faults.is_gone(str(worker.pod.obj["spec"].get("nodeName"))):
                worker.stop(0)
            worker.publish()
        self.bell.ring()

    def _obey_node_fault(self, spec: NodeSpec) -> None:
        entry = self.store.get(kinds.NODES, "", spec.name)
        if self._faults.is_gone(spec.name):
            self._gone.add(spec.name)
            if entry:
                self._objects.delete(kinds.NODES, entry, NOW)
            return
        if spec.name in self._gone:
            self._gone.discard(spec.name)
            self._register(spec)
            return
        if entry is None:
            return
        old = entry.obj["status"].get("conditions") or []
        ready = self._faults.is_ready(spec.name)
        status = {**entry.copy()["status"], "conditions": nodes.conditions(ready=ready, old=old)}
        self._objects.set_status(kinds.NODES, entry, status)

    # What workers ask (worker.Host)

    def reachable(self, pod: Json) -> bool:
        name = pod["spec"]["nodeName"]
        return self._faults.is_reachable(name) and self.store.get(kinds.NODES, "", name) is not None

    def lets_go(self, pod: Json) -> bool:
        return self._faults.is_reachable(pod["spec"]["nodeName"]) and not self._faults.is_stuck(pod)

    def image_missing(self, image: str) -> bool:
        return self._faults.is_missing(image)

    def admit(self, pod: Json) -> tuple[str, str]:
        """Kubelet's own check of a pod that was bound to it: reason and message of a refusal, or nothing."""
        name = pod["spec"]["nodeName"]
        node = self._objects.get(kinds.NODES, "", name).obj
        rejection = self._faults.rejection(name)
        if rejection:
            return rejection, f"Pod was rejected: {rejection} (fault set on node {name})"
        if not nodes.selects(pod, node):
            return "NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed"
        missing = self._ledger.missing(node, pod)
        if missing:
            resource, *amounts = missing
            wanted, taken, there = (quantities.show(amount, resource) for amount in amounts)
            why = f"{resource}, requested: {wanted}, used: {taken}, capacity: {there}"
            return f"OutOf{resource}", f"Pod was rejected: Node didn't have enough resource: {why}"
        self._ledger.book(name, pod)
        return "", ""

    def release(self, pod: Json) -> None:
        self._ledger.release(pod["spec"]["nodeName"], pod["metadata"]["uid"])

    def publish(self, pod: Entry, state: podstatus.PodState) -> None:
        """Write the status, unless the node is cut off: then it is written when the fault is cleared."""
        entry = self.store.get(kinds.PODS, *pod.key)
        if entry and entry.uid == pod.uid and self._faults.is_reachable(pod.obj["spec"]["nodeName"]):
            self._objects.set_status(kinds.PODS, entry, podstatus.build(entry.obj, state))

    def confirm(self, pod: Entry) -> None:
        """The processes of a deleted pod are gone: so may be the object."""
        entry = self.store.get(kinds.PODS, *pod.key)
        if entry and entry.uid == pod.uid:
            self._objects.delete(kinds.PODS, entry, DeleteOptions(grace=0, uid=pod.uid))

    def event(self, pod: Entry, reason: str, message: str, *, warning: bool = False) -> None:
        try:
            self._events.record(pod, reason, message, component="kubelet", warning=warning)
        except statuses.ApiError as error:
            _logger.warning("event %s of %s is lost: %s", reason, pod.key, error.message)
