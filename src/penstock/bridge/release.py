"""Release: Slurm takes a node back, and frees it when the job's pods there are gone. Asked by the Epilog.

A job's pods are searched in the cache and by name, and by label only if neither finds one: a list may be
incomplete, a GET by name is not.
"""

from __future__ import annotations

from penstock import crashpoints, errors, wellknown
from penstock.bridge import attemptfiles, confirmation, owners, placement, podremoval, unlaunched
from penstock.bridge.context import Context
from penstock.kube import kinds, lists, podview, types
from penstock.model import jobs, states
from penstock.render import pods as rendering


class Releasing:
    def __init__(
        self,
        context: Context,
        *,
        placements: placement.Placements,
        attempts: attemptfiles.AttemptRecords,
        known: owners.Owners,
    ) -> None:
        self._context, self._store = context, context.store
        self._placements, self._attempts, self._owners = placements, attempts, known

    async def release(self, job_id: int, node: str) -> None:
        """Remove the job's pods from the node and wait until they are gone; cancels a running admission."""
        began = self._context.time.now()
        await self._release(job_id, node)
        self._context.meter.released(self._context.time.now() - began)
        self._store.note(job_id, "released", node)
        crashpoints.reach("release.done")

    async def _release(self, job_id: int, node: str) -> None:
        current = await self._current_attempt(job_id, node)
        if current is not None:
            await self._remove_earlier(current, node)
            return
        self._store.job(job_id).is_admitting = False
        self._store.leave(job_id, node)
        crashpoints.reach("release.asked")
        allocation = self._store.reservation(job_id)
        with self._attempts.watching(job_id):
            await self._remove_pods(job_id, node, allocation)
        crashpoints.reach("release.gone")
        self._store.release(job_id, node)
        crashpoints.reach("release.freed")
        if allocation is not None and self._store.reservation(job_id) is None:
            await unlaunched.note(self._context, self._attempts, allocation)
            await self._attempts.close(allocation.identity)

    async def _current_attempt(self, job_id: int, node: str) -> jobs.JobIdentity | None:
        """The job's attempt that runs on the node, if this Epilog is an earlier attempt's.

        An Epilog does not tell its attempt, but Slurm runs none for a job on a node where the job is running.
        So the node was lost, came back and got the job again.
        """
        held = self._store.reservation(job_id)
        if held is None or not held.identity.restart:
            return None
        try:
            details = await self._context.slurm.details(job_id)
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError:  # the job has no nodes any more
            return None
        runs_here = details.state in states.AT_WORK and any(share.node == node for share in details.shares)
        return held.identity if runs_here else None

    async def _remove_earlier(self, current: jobs.JobIdentity, node: str) -> None:
        """Remove pods of the job's earlier attempts from the node."""
        for pod in self._context.pods.by(podview.BY_JOB, current.job_id):
            if pod.spec.node_name == node and not podview.belongs_to(pod, current):
                await podremoval.remove(self._context, pod)

    async def _remove_pods(self, job_id: int, node: str, allocation: jobs.Allocation | None) -> None:
        """Remove the job's pods from the node, and pods without a node unless the Epilog is a late one of a
        lost node: then they wait for other nodes.
        """
        place: str | None = node
        namespace = ""
        if allocation is not None:
            place = self._placements.of(allocation.partition).released_with(job_id, node)
            namespace = await self._owners.namespace(allocation, self._context.settings)
        if place is None:
            return
        holds = allocation is None or self._store.holds(job_id, node)
        places = ("", place) if holds else (place,)

        def here(pods: list[types.Pod]) -> list[types.Pod]:
            return [pod for pod in pods if place == placement.ANYWHERE or pod.spec.node_name in places]

        found = list(self._context.pods.by(podview.BY_JOB, job_id))
        if allocation is not None and namespace:
            found += await self._by_name(allocation.identity, self._store.ranks(job_id, place), namespace)
        found = here(found) or here(await self._by_label(job_id, namespace))
        for pod in {pod.metadata.uid: pod for pod in found}.values():
            await podremoval.remove(self._context, pod)

    async def _by_name(
        self, identity: jobs.JobIdentity, ranks: tuple[int, ...], namespace: str
    ) -> list[types.Pod]:
        names = [rendering.pod_name(identity, rank) for rank in ranks]
        found = [await confirmation.pod(self._context.kube, namespace, name) for name in names]
        view = self._context.pods.view
        return [pod for pod in found if pod is not None and podview.job_id(view(pod)) == identity.job_id]

    async def _by_label(self, job_id: int, namespace: str) -> list[types.Pod]:
        labels = {wellknown.LABEL_APP: wellknown.APP_VALUE, wellknown.LABEL_JOB_ID: str(job_id)}
        if self._context.cluster:
            labels[wellknown.LABEL_CLUSTER] = self._context.cluster
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        found = await lists.everything(
            self._context.kube, kinds.PODS, types.Pod, namespace=namespace, labels=selector
        )
        return list(found.items)
