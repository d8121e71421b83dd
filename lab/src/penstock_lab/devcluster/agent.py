"""The agents of all nodes: start workers for bound pods, maintain the Node objects, apply faults."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from pathlib import Path
from typing import Final

from penstock_lab.devcluster import kindtable, nodeobjects, podnetwork, podstatus, quotas, scheduler
from penstock_lab.devcluster.faults import Faults
from penstock_lab.devcluster.nodeobjects import NodeSpec
from penstock_lab.devcluster.objects import Objects
from penstock_lab.devcluster.objectstore import Change, Entry
from penstock_lab.devcluster.podlogs import Log, ring
from penstock_lab.devcluster.podprocesses import Cgroups
from penstock_lab.devcluster.worker import Worker

BACKOFF: Final = 10.0
_LAST_GRACE: Final = 2.0
_CAP_SYS_ADMIN: Final = 21
_logger = logging.getLogger(__name__)


def may_isolate() -> bool:
    """Whether containers can have namespaces: needs root and CAP_SYS_ADMIN."""
    lines = Path("/proc/self/status").read_text().split("\n")
    effective = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return os.geteuid() == 0 and bool(effective & 1 << _CAP_SYS_ADMIN)


class Agents:
    """The agents of all nodes, and the workers' interface to the cluster."""

    def __init__(
        self,
        objects: Objects,
        faults: Faults,
        specs: list[NodeSpec],
        data_dir: Path,
        *,
        backoff: float = BACKOFF,
    ) -> None:
        self.store = objects.store
        self.bell = asyncio.Event()
        self.isolate = may_isolate()
        self.backoff = backoff
        self.cgroups = Cgroups(data_dir)
        self.addresses = podnetwork.Addresses(data_dir)
        self._objects = objects
        self._faults = faults
        self._specs = {spec.name: spec for spec in specs}
        self._directory = data_dir / "pods"
        self._gone: set[str] = set()
        self._workers: dict[str, Worker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir()

    def start(self) -> None:
        """Register the nodes and start watching."""
        for spec in self._specs.values():
            self._objects.create(kindtable.NODES, "", nodeobjects.node_object(spec))
        self.store.listen(kindtable.PODS, self._on_pod)
        for kind in (kindtable.SECRETS, kindtable.CONFIGMAPS):
            self.store.listen(kind, lambda change: ring(self.bell))
        self._faults.listeners.append(self._on_faults)

    async def stop(self) -> None:
        """Stop every process: SIGTERM, then SIGKILL."""
        for uid, worker in self._workers.items():
            worker.close(_LAST_GRACE)
            if worker.state.over:
                self._tasks[uid].cancel()
        if tasks := list(self._tasks.values()):
            _, late = await asyncio.wait(tasks, timeout=_LAST_GRACE + 1)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        try:
            self.cgroups.remove_all()
        except OSError as error:  # the next start tries again
            _logger.warning("cannot remove cgroups: %s", error)

    def pid_of(self, uid: str, container: str) -> int | None:
        """The host's pid of a container's first process, if it is running."""
        worker = self._workers.get(uid)
        return worker.pids.get(container) if worker else None

    def log_of(self, uid: str, container: str) -> Log | None:
        """The log of the container's latest run, if any."""
        worker = self._workers.get(uid)
        return worker.logs.get(container) if worker else None

    def _on_pod(self, change: Change) -> None:
        pod, worker = change.entry, self._workers.get(change.entry.uid)
        ours = pod.obj["spec"].get("nodeName") in self._specs
        if worker and change.type == "DELETED":
            worker.vanish()
        elif worker:
            worker.note(pod)
        elif ours and change.type != "DELETED" and pod.obj["status"].get("phase") not in quotas.TERMINAL:
            worker = self._workers[pod.uid] = Worker(self, pod, self._directory / pod.uid)
            task = asyncio.get_running_loop().create_task(self._run(worker))
            self._tasks[pod.uid] = task

    async def _run(self, worker: Worker) -> None:
        uid = worker.pod.uid
        try:
            await worker.run()
        except Exception:
            _logger.exception("pod %s", worker.pod.key)
        finally:
            del self._workers[uid], self._tasks[uid]

    def _on_faults(self) -> None:
        """Update the Node objects, then wake every worker."""
        for name in self._specs:
            self._obey_node_fault(name)
        for worker in list(self._workers.values()):
            if self._faults.of("nodes", worker.node).get("gone"):
                worker.stop(0)
            worker.publish()
        ring(self.bell)

    def _obey_node_fault(self, name: str) -> None:
        entry, ready = self.store.get(kindtable.NODES, "", name), self._faults.is_ready(name)
        if self._faults.of("nodes", name).get("gone"):
            self._gone.add(name)
            if entry:
                self._objects.delete(entry)
        elif name in self._gone:
            self._gone.discard(name)
            self._objects.create(kindtable.NODES, "", nodeobjects.node_object(self._specs[name]))
        elif entry and nodeobjects.is_ready(entry.obj) != ready:
            self._objects.set_condition(entry, nodeobjects.condition(ready=ready))

    # -- for workers --------------------------------------------------------------------------------------

    def reachable(self, node: str) -> bool:
        return self._faults.is_reachable(node) and self.store.get(kindtable.NODES, "", node) is not None

    def lets_go(self, worker: Worker) -> bool:
        """Whether the pod may be stopped. Deleting the Node object does not keep a kubelet from stopping
        pods, and a force-deleted pod is never stuck.
        """
        stuck = not worker.vanished and self._faults.is_stuck(worker.pod.obj)
        return self._faults.is_reachable(worker.node) and not stuck

    def image_missing(self, image: str) -> bool:
        return image in self._faults.of("images").get("missing", ())

    def admit(self, worker: Worker) -> tuple[str, str] | None:
        """The kubelet's admission of a bound pod: reason and message of a refusal, or None."""
        pod, node = worker.pod.obj, self._objects.get(kindtable.NODES, "", worker.node).obj
        rejection = self._faults.of("nodes", worker.node).get("reject")
        if rejection:
            return rejection, f"Pod was rejected: {rejection} (fault set on node {worker.node})"
        if not scheduler.selects(pod, node):
            return "NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed"
        taken = quotas.add(one.claims for one in self._workers.values() if one.node == worker.node)
        missing = quotas.shortage(node, pod, taken)
        if missing:
            wanted, used, there = (quotas.show(amount, missing[0]) for amount in missing[1:])
            why = f"{missing[0]}, requested: {wanted}, used: {used}, capacity: {there}"
            return f"OutOf{missing[0]}", f"Pod was rejected: Node didn't have enough resource: {why}"
        worker.claims = quotas.claims(pod)
        return None

    def publish(self, worker: Worker) -> None:
        """Write the status; if the node is unreachable, it is written once the fault is cleared."""
        entry = self.store.get(kindtable.PODS, *worker.pod.key)
        if entry and entry.uid == worker.pod.uid and self._faults.is_reachable(worker.node):
            self._objects.set_status(entry, podstatus.build(entry.obj, worker.state))

    def confirm(self, pod: Entry) -> None:
        """Remove a deleted pod's object, once its processes have ended."""
        entry = self.store.get(kindtable.PODS, *pod.key)
        if entry and entry.uid == pod.uid:
            self._objects.delete(entry)

    def event(self, pod: Entry, reason: str, message: str, *, warning: bool = False) -> None:
        self._objects.event(pod, reason, message, source="kubelet", warning=warning)
