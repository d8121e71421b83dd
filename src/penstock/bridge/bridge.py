"""The join of Slurm and Kubernetes, job by job: admit, launch, follow, stop, release.

Each method is one step of the protocol (docs/architecture.md) and may be called again after a crash: what was
done is found, not repeated. Identity always comes from the caller's side of the socket or from Slurm, never
from a message.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncIterator

import msgspec

from penstock import errors, wellknown
from penstock.bridge import admission, following, gang, ledger, outcomes, owners, ports, release
from penstock.kube import reflecting, types
from penstock.model import jobs, launches
from penstock.render import pods as rendering

log = logging.getLogger(__name__)


class NotYours(errors.PenstockError):
    """Somebody asks for a job that is not theirs or does not run."""


@dataclasses.dataclass
class Bridge:
    """All that the protocol's steps share."""

    slurm: ports.Slurm
    kube: ports.Kube
    pods: reflecting.Reflector[types.Pod]
    nodes: reflecting.Reflector[types.Node]
    settings: rendering.PodSettings
    ledger: ledger.Ledger = dataclasses.field(default_factory=ledger.Ledger)

    async def admit(self, identity: jobs.JobIdentity) -> tuple[str, ...]:
        """Why the job cannot start on its nodes now; empty when it can, and then the room is held."""
        if not (self.pods.fresh and self.nodes.fresh):
            return ("waits for Kubernetes: the API does not answer",)
        allocation = jobs.Allocation(identity=identity, shares=await self.slurm.shares(identity.job_id))
        found = admission.refusals(
            allocation, nodes=self.nodes.objects, pods=self.pods.objects.values(), promised=self.ledger
        )
        if found:
            self.ledger.forget(identity.job_id)
        else:
            self.ledger.hold(allocation)
        return found

    async def allocation_for(self, job_id: int, uid: int) -> jobs.Allocation:
        """The running job's allocation, if it belongs to that uid; NotYours when not."""
        allocation = self.ledger.of(job_id) or await self._allocation_from_slurm(job_id)
        if allocation is None or allocation.identity.uid != uid:
            raise NotYours(f"job {job_id} is not a running job of uid {uid}")
        return allocation

    async def _allocation_from_slurm(self, job_id: int) -> jobs.Allocation | None:
        live = await self.slurm.live_job(job_id)
        if live is None or not live.holds_resources:
            return None
        allocation = jobs.Allocation(identity=live.identity, shares=await self.slurm.shares(job_id))
        self.ledger.hold(allocation)
        return allocation

    async def launch(self, allocation: jobs.Allocation, request: launches.LaunchRequest) -> types.Pod:
        """Make the gang; rank 0's pod."""
        owner = owners.owner_of(allocation.identity.uid)
        made = await gang.create(self.kube, allocation, owner=owner, request=request, settings=self.settings)
        for pod in made:
            self.pods.put_if_new(pod)
        log.info(
            "job %d runs as %s/%s",
            allocation.identity.job_id,
            made[0].metadata.namespace,
            made[0].metadata.name,
        )
        return made[0]

    async def attach(self, allocation: jobs.Allocation) -> types.Pod | None:
        """Rank 0's pod of an attempt that was launched before; None when it is not there any more."""
        namespace = self._namespace(allocation)
        try:
            answer = await self.kube.get(
                "pods", namespace=namespace, name=rendering.pod_name(allocation.identity, 0)
            )
        except errors.KubeNotFound:
            return None
        return msgspec.json.decode(answer, type=types.Pod)

    async def end_of(self, pod: types.Pod) -> outcomes.Outcome:
        """Wait for the job's end."""
        return await following.end_of(pod, kube=self.kube, pods=self.pods)

    def output_of(self, pod: types.Pod) -> AsyncIterator[bytes]:
        """The container's output, from its beginning until it has ended."""
        return self.kube.log(
            namespace=pod.metadata.namespace, name=pod.metadata.name, container=wellknown.CONTAINER_NAME
        )

    async def stop(self, pod: types.Pod) -> None:
        """Slurm wants the job to end: SIGTERM now, SIGKILL when Slurm's own patience ends."""
        meta = pod.metadata
        try:
            await self.kube.delete(
                "pods", namespace=meta.namespace, name=meta.name, uid=meta.uid, grace=self.settings.kill_wait
            )
        except (errors.KubeNotFound, errors.KubeConflict):
            log.info("pod %s had gone already", meta.name)

    async def release(self, job_id: int, node: str) -> None:
        """The job's pods are gone from the node when this returns."""
        allocation = self.ledger.of(job_id)
        namespace = self._namespace(allocation) if allocation else ""
        await release.remove_from_node(job_id, node, namespace=namespace, kube=self.kube, pods=self.pods)
        self.ledger.release(job_id, node)

    def _namespace(self, allocation: jobs.Allocation) -> str:
        return rendering.namespace_of(owners.owner_of(allocation.identity.uid), self.settings)
