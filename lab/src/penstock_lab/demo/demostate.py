"""Snapshots of Slurm's queue and the cluster's pods, and whether they agree."""

from __future__ import annotations

import asyncio
import dataclasses

from penstock import errors, wellknown
from penstock.kube import client, kinds, lists, podview, types
from penstock.model import states
from penstock.slurm import commands
from penstock_lab.demo import scenario

_QUEUE = "JobID:|,JobArrayID:|,Name:|,StateCompact:|,TimeUsed:|,ReasonList:|"
_RECORD = "JobID,JobName,State,ExitCode,Elapsed,NodeList"


@dataclasses.dataclass(frozen=True)
class QueueLine:
    job_id: int
    shown_id: str
    name: str
    state: str
    time: str
    where: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Pods, then the queue."""

    queue: tuple[QueueLine, ...]
    pods: tuple[types.Pod, ...]

    def strays(self, earlier: Snapshot | None) -> list[str]:
        """Pods whose job was in the queue neither just before nor just after."""
        known = {line.job_id for snapshot in (self, earlier) if snapshot for line in snapshot.queue}
        return [
            f"pod {pod.metadata.name} belongs to no job in squeue"
            for pod in self.pods
            if podview.job_id(pod) not in known
        ]


@dataclasses.dataclass(frozen=True)
class Observer:
    """Reads Slurm and Kubernetes of one lab."""

    slurm_conf: str
    kube: client.KubeClient

    async def look(self) -> Snapshot:
        pods = await self.pods()
        return Snapshot(queue=await self._queue(), pods=pods)

    async def pods(self) -> tuple[types.Pod, ...]:
        ours = f"{wellknown.LABEL_APP}={wellknown.APP_VALUE}"
        return (await lists.everything(self.kube, kinds.PODS, types.Pod, labels=ours)).items

    async def log(self, pod: types.Pod) -> bytes:
        """The container's log, to its end: what `kubectl logs --follow` shows."""
        found, meta = b"", pod.metadata
        try:
            async for chunk in self.kube.log(
                namespace=meta.namespace, name=meta.name, container=wellknown.CONTAINER_NAME
            ):
                found += chunk
        except errors.KubeError as error:
            found += f"(the log ended early: {error.message})".encode()
        return found

    async def _queue(self) -> tuple[QueueLine, ...]:
        argv = ("squeue", "--noheader", "--array", f"--Format={_QUEUE}")
        text = await commands.run(argv, slurm_conf=self.slurm_conf)
        rows = ([field.strip() for field in line.split("|")] for line in text.split("\n") if line)
        return tuple(QueueLine(int(row[0]), *row[1:6]) for row in rows)

    async def _records(self, job_ids: tuple[str, ...]) -> tuple[scenario.Record, ...]:
        argv = ("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={','.join(job_ids)}")
        text = await commands.run((*argv, f"--format={_RECORD}"), slurm_conf=self.slurm_conf)
        return tuple(scenario.Record(*line.split("|")) for line in text.split("\n") if line)

    async def ended_records(self, job_ids: tuple[str, ...], *, within: float) -> tuple[scenario.Record, ...]:
        """The records, once all jobs have ended in the accounting."""
        for _ in range(int(within / 0.2)):
            records = await self._records(job_ids)
            if all(record.state.partition(" ")[0] in states.OVER for record in records):
                return records
            await asyncio.sleep(0.2)
        return records
