"""The join of Slurm and Kubernetes, job by job: admit, launch, follow, signal, release.

Each method is one step of the protocol (docs/architecture.md) and may be called again after a crash: what was
done is found, not repeated. Identity always comes from the caller's side of the socket or from Slurm, never
from a message.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import logging
import signal
import time as unix_time
from collections.abc import AsyncIterator, Callable, Iterator

from penstock import clock, crashpoints, errors, wellknown
from penstock.bridge import (
    admission,
    attempts,
    backoff,
    confirming,
    following,
    gang,
    ledger,
    namespaces,
    outcomes,
    owners,
    ports,
    release,
    steering,
    timeline,
    unlaunched,
)
from penstock.kube import reading, reflecting, types
from penstock.model import jobs, launches
from penstock.render import pods as rendering

log = logging.getLogger(__name__)

CANCELLED = "was cancelled before it could start"
UNPREPARED = "waits for ever: it did not come to this partition through sbatch, cancel it and submit it again"
API_AWAY = "waits for Kubernetes: the API does not answer"
DEFAULT_SECONDS = 60.0  # how long Slurm's JobRequeue is remembered
LOOK_SECONDS = 12.0  # the longest that an admission waits for the API: Slurm holds the nodes meanwhile


View = tuple[dict[str, types.Node], list[types.Pod]]


class NotYours(errors.PenstockError):
    """Somebody asks for a job that is not theirs or does not run."""


class Bridge:
    """All that the protocol's steps share."""

    def __init__(
        self,
        *,
        slurm: ports.Slurm,
        kube: ports.Kube,
        pods: reflecting.Reflector[types.Pod],
        nodes: reflecting.Reflector[types.Node],
        settings: rendering.PodSettings,
        time: clock.Clock,
        start_timeout: float,
        wall_clock: Callable[[], float] = unix_time.time,
        attempts_kept: attempts.Attempts | None = None,
    ) -> None:
        self.slurm = slurm
        self.kube = kube
        self.pods = pods
        self.nodes = nodes
        self.settings = settings
        self.time = time
        self.cluster = rendering.label_of(settings.cluster)
        self.ledger = ledger.Ledger()
        self.owners = owners.Owners()
        self._admitting: set[int] = set()
        self._default, self._default_until = True, 0.0
        self.attended: collections.Counter[int] = collections.Counter()
        """Launchers connected now, by job: as long as one is there, slurmd runs the job."""
        self.backoff = backoff.Backoff()
        self.timeline = timeline.Timeline(wall_clock)
        self.steering = steering.Steering(
            slurm=slurm, pods=pods, nodes=nodes, promised=self.ledger, time=time, wall_clock=wall_clock
        )
        self.attempts = attempts_kept or attempts.Attempts(settings)
        self.follower = following.Follower(kube, pods, nodes, time, start_timeout)
        self.maker = gang.GangMaker(
            kube, self.follower, settings, namespaces.Namespaces(kube, settings), self.ledger.holds
        )

    # -- admit -------------------------------------------------------------------------------------

    async def admit(self, identity: jobs.JobIdentity) -> tuple[str, ...]:
        """Why the job cannot start on its nodes now; empty when it can, and then the room is held."""
        if not (self.pods.fresh and self.nodes.fresh):
            self.steering.unseen(identity.job_id)
            return (API_AWAY,)
        self.timeline.own(identity.job_id, identity.uid)
        self._admitting.add(identity.job_id)
        try:
            await self.attempts.wait_for_collector(identity, self.time)
            details = await self.slurm.details(identity.job_id)
            allocation = details.allocation(identity)
            if not details.may_go_back:  # its owner has changed that while it waited
                await self.slurm.let_wait(identity.job_id)
            view = await self._look(allocation)
            still_wanted = identity.job_id in self._admitting
        except (errors.KubeError, TimeoutError) as error:
            log.info("job %d is not admitted: %s", identity.job_id, error or "the API is slow")
            self.steering.unseen(identity.job_id)
            return (API_AWAY,)
        finally:
            self._admitting.discard(identity.job_id)
        if details.is_over or not still_wanted:
            return (CANCELLED,)
        if not details.prepared:
            return (UNPREPARED,)
        left = await self._earlier_attempts(identity, details.submitted)
        refused = {} if left else self._refusals(allocation, view)
        if refused:
            self.steering.refused(allocation, on=refused)
        if left or refused:
            self.ledger.forget(identity.job_id)
            return left or tuple(refused.values())
        self.ledger.hold(allocation)
        self.backoff.forget(identity.job_id)
        self.steering.admitted(allocation, details.avoids)
        await self._give_comment_back(identity.job_id, details.own_comment)
        return ()

    async def _give_comment_back(self, job_id: int, own: str | None) -> None:
        """The job starts: its comment need not say any more why it waits. If that fails it still starts."""
        if own is None:
            return
        try:
            await self.slurm.set_comment(job_id, own)
        except errors.SlurmError as error:
            log.info("job %d keeps the comment that says why it waited: %s", job_id, error.message)

    async def _look(self, allocation: jobs.Allocation) -> View:
        """The nodes and pods that the allocation meets, asked for now; nothing where nothing is checked."""
        if self.settings.is_trusted(allocation.partition):
            return {}, []
        names = [share.node for share in allocation.shares]
        async with asyncio.timeout(LOOK_SECONDS):
            nodes = await confirming.nodes(self.kube, names)
            return nodes, await confirming.pods_on(self.kube, names, self.pods)

    def _refusals(self, allocation: jobs.Allocation, view: View) -> dict[str, str]:
        if self.settings.is_trusted(allocation.partition):
            return {}
        nodes, pods = view
        return admission.by_node(allocation, nodes=nodes, pods=pods, promised=self.ledger)

    async def _earlier_attempts(self, identity: jobs.JobIdentity, submitted: int) -> tuple[str, ...]:
        """Pods of this job from before: a job never runs beside itself, so they have to go first.

        So have those of another job that Slurm has forgotten since and given the number anew.
        """
        pods = [pod for pod in self.pods.objects.values() if reading.job_id(pod) == identity.job_id]
        if not pods and not self.attended[identity.job_id]:
            await self.attempts.close(identity)  # of such a job; this one has not begun
        left = [
            pod
            for pod in pods
            if not reading.belongs_to(pod, identity) or reading.is_older_than(pod, submitted)
        ]
        for pod in left:
            await self.delete(pod, grace=release.GRACE)
        return tuple(f"waits for pod {pod.metadata.name} of its earlier attempt to be gone" for pod in left)

    # -- launch ------------------------------------------------------------------------------------

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
        return (await self.slurm.details(job_id)).allocation(live.identity)

    async def launch(
        self, allocation: jobs.Allocation, request: launches.LaunchRequest, starting: gang.Starting
    ) -> tuple[types.Pod, ...]:
        """Make the gang; `starting` is awaited before its script can run."""
        if self.ledger.of(allocation.identity.job_id) is None:
            await self._admit_late(allocation.identity)
        owner = await self.owners.of_job(allocation)
        self.timeline.own(allocation.identity.job_id, allocation.identity.uid)
        request = await self._noted(allocation, request)
        crashpoints.reach("launch.noted")
        made = await self.maker.create(allocation, owner=owner, request=request, starting=starting)
        meta = made[0].metadata
        log.info("job %d runs as %s/%s", allocation.identity.job_id, meta.namespace, meta.name)
        return made

    async def _admit_late(self, identity: jobs.JobIdentity) -> None:
        """Slurm starts a job, too, whose PrologSlurmctld was killed: nobody has let it in yet."""
        reasons = await self.admit(identity)
        if API_AWAY in reasons:
            raise errors.KubeUnavailable(API_AWAY)
        if reasons:
            raise gang.GangRefused("; ".join(reasons), requeue=True)

    async def _noted(
        self, allocation: jobs.Allocation, request: launches.LaunchRequest
    ) -> launches.LaunchRequest:
        """The request with its folder for outputs, which is the same each time."""
        output_dir = await self.attempts.begin(allocation, request)
        return dataclasses.replace(request, output_dir=output_dir.encode())

    async def may_run_twice(self, allocation: jobs.Allocation) -> bool:
        """Whether the job's owner, or else the site, lets a job that has begun begin again."""
        if allocation.requeue is not None:
            return allocation.requeue
        if self.time.now() >= self._default_until:
            self._default = await self.slurm.requeues_by_default()
            self._default_until = self.time.now() + DEFAULT_SECONDS
        return self._default

    async def attach(
        self, allocation: jobs.Allocation, request: launches.LaunchRequest
    ) -> tuple[types.Pod, ...]:
        """The gang of an attempt that was launched before; empty when it is not all there any more.

        Its maker may have been stopped between announcing the start and placing rank 0: that is made up for.
        """
        found, namespace = [], await self._namespace(allocation)
        if not namespace:
            return ()
        for rank in self.ledger.ranks(allocation.identity.job_id) or range(len(allocation.shares)):
            place, name = self._whereabouts(allocation.identity, rank, namespace)
            try:
                pod = await confirming.pod(self.kube, place, name)
            except errors.KubeNotAllowed as error:  # it may run all the same
                raise errors.KubeUnavailable(error.message) from error
            if pod is not None and reading.belongs_to(self.pods.view(pod), allocation.identity):
                found.append(self.pods.view(pod))
            elif rank == 0:
                return ()
        # kube-scheduler may have placed a pod whose script the Secret still keeps from running.
        trusted = self.settings.is_trusted(allocation.partition)
        if found[0].spec.node_name and (reading.has_started(found[0]) or not trusted):
            return tuple(found)
        if len(found) < len(allocation.shares):
            return ()
        owner = await self.owners.of_job(allocation)
        request = await self._noted(allocation, request)
        return await self.maker.complete(tuple(found), allocation, owner=owner, request=request)

    def _whereabouts(self, identity: jobs.JobIdentity, rank: int, usual: str) -> tuple[str, str]:
        """Namespace and name of the attempt's pod: as the picture has it, whatever such pods were called
        when it was made, whatever its owner is called by now and whether or not the name service answers.
        """
        name = rendering.pod_name(identity, rank)
        if f"{usual}/{name}" not in self.pods.objects:
            for pod in self.pods.objects.values():
                if reading.belongs_to(pod, identity) and reading.rank(pod) == rank:
                    return pod.metadata.namespace, pod.metadata.name
        return usual, name

    async def loss_of(self, allocation: jobs.Allocation) -> outcomes.Outcome:
        """How an attempt ended that is not all there any more: as it was seen, or with a node of its own."""
        seen = self.attempts.end_of(allocation.identity)
        if seen is not None or self.settings.is_trusted(allocation.partition):
            return seen or outcomes.VANISHED
        names = [share.node for share in allocation.shares]
        there = await confirming.nodes(self.kube, names)
        return outcomes.VANISHED if len(there) == len(names) else outcomes.NODE_LOST

    @contextlib.contextmanager
    def attending(self, job_id: int) -> Iterator[None]:
        """The job's launcher is connected."""
        self.attended[job_id] += 1
        try:
            yield
        finally:
            self.attended[job_id] -= 1
            if not self.attended[job_id]:
                del self.attended[job_id]

    # -- run ---------------------------------------------------------------------------------------

    async def end_of(self, job_id: int, made: tuple[types.Pod, ...]) -> outcomes.Outcome:
        """Wait for the job's end."""
        return await self.follower.end_of(made, lambda: self.ledger.is_leaving(job_id))

    async def note_end(
        self, identity: jobs.JobIdentity, outcome: outcomes.Outcome, gang: tuple[types.Pod, ...]
    ) -> None:
        """For the job's results: its end, and its pods as they are now."""
        known = (self.pods.objects.get(reflecting.key_of(pod.metadata)) for pod in gang)
        await self.attempts.ended(identity, outcome, [pod for pod in known if pod is not None])

    def output_of(self, pod: types.Pod) -> AsyncIterator[bytes]:
        """The container's output, from its beginning until it has ended."""
        return self.kube.log(
            namespace=pod.metadata.namespace, name=pod.metadata.name, container=wellknown.CONTAINER_NAME
        )

    async def signal(
        self, pod: types.Pod, number: signal.Signals, *, everyone: bool, agent: bool = True
    ) -> None:
        """Deliver a signal to the script (through the agent, if there is one) or to all processes of the job.

        An agent that gets a SIGTERM ends them all: kubelets have no other word for that.
        """
        target = "-1" if everyone else "1"
        alone = agent and not everyone and number == signal.SIGTERM
        name = wellknown.TERM_FOR_THE_SCRIPT if alone else number.name
        command = ("/bin/sh", "-c", f"kill -{name.removeprefix('SIG')} {target}")
        meta = pod.metadata
        await self.kube.run(
            command, namespace=meta.namespace, name=meta.name, container=wellknown.CONTAINER_NAME
        )

    def in_container(self, pod: types.Pod, *words: str) -> AsyncIterator[tuple[int, bytes]]:
        """What the agent prints when it is called with these words beside the one that runs the job."""
        meta = pod.metadata
        command = ("/bin/sh", f"{wellknown.AGENT_MOUNT}/agent.sh", *words)
        return self.kube.stream(
            command, namespace=meta.namespace, name=meta.name, container=wellknown.CONTAINER_NAME
        )

    async def touch(self, pod: types.Pod, file: str) -> None:
        """Leave a mark in the pod: an empty file."""
        meta = pod.metadata
        await self.kube.run(
            ("/bin/sh", "-c", f": >{file}"),
            namespace=meta.namespace,
            name=meta.name,
            container=wellknown.CONTAINER_NAME,
        )

    async def stop(self, pod: types.Pod) -> None:
        """End the pod when a signal cannot be delivered: kubelet's SIGTERM, then SIGKILL after Slurm's
        patience.
        """
        await self.delete(pod, grace=self.settings.kill_wait)

    async def delete(self, pod: types.Pod, *, grace: int) -> None:
        """Ask for a pod's end, unless it has ended by itself."""
        meta = pod.metadata
        try:
            await self.kube.delete(
                "pods", namespace=meta.namespace, name=meta.name, uid=meta.uid, grace=grace
            )
        except errors.KubeNotFound:
            log.info("pod %s had gone already", meta.name)
            self.pods.gone(pod)
        except errors.KubeConflict as error:
            if await confirming.is_there(self.kube, meta):
                raise errors.KubeUnavailable(f"pod {meta.name} is not deleted: {error.message}") from error
            log.info("another pod has the name %s by now", meta.name)

    # -- release -----------------------------------------------------------------------------------

    async def release(self, job_id: int, node: str) -> None:
        """The job's pods are gone from the node when this returns; an admission under way is called off."""
        now = await self._attempt_now_on(job_id, node)
        if now is not None:
            await self._remove_earlier(now, node)
            return
        self._admitting.discard(job_id)
        self.ledger.leave(job_id, node)
        crashpoints.reach("release.asked")
        allocation = self.ledger.of(job_id)
        with self.attempts.watching(job_id, self.pods):
            await self._remove_pods(job_id, node, allocation)
        crashpoints.reach("release.gone")
        self.ledger.release(job_id, node)
        crashpoints.reach("release.freed")
        if allocation is not None and self.ledger.of(job_id) is None:
            await unlaunched.note(self, allocation)
            await self.attempts.close(allocation.identity)

    async def _attempt_now_on(self, job_id: int, node: str) -> jobs.JobIdentity | None:
        """The attempt that Slurm runs on the node; then its Epilog there is an earlier attempt's.

        Its node was lost, came back and has the job again. An Epilog does not say which attempt it is about,
        but Slurm starts none on a node of a job that runs there.
        """
        held = self.ledger.of(job_id)
        if held is None or not held.identity.restart:
            return None
        try:
            details = await self.slurm.details(job_id)
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError:  # it has no nodes any more
            return None
        runs_here = details.state in jobs.AT_WORK and any(share.node == node for share in details.shares)
        return held.identity if runs_here else None

    async def _remove_earlier(self, now: jobs.JobIdentity, node: str) -> None:
        """What earlier attempts of the job have left on the node."""
        for pod in list(self.pods.objects.values()):
            of_job = pod.spec.node_name == node and reading.job_id(pod) == now.job_id
            if of_job and not reading.belongs_to(pod, now):
                await release.remove(pod, kube=self.kube, pods=self.pods)

    async def _remove_pods(self, job_id: int, node: str, allocation: jobs.Allocation | None) -> None:
        """Where kube-scheduler placed the pods, they are on nodes of its choice: all go with the script's.

        An Epilog may come late, after its node was lost and the job sent elsewhere: pods that wait for other
        nodes are none of its business.
        """
        place = node
        if allocation is not None and self.settings.is_trusted(allocation.partition):
            if 0 not in self.ledger.ranks(job_id, node):
                return
            place = ""
        names: tuple[str, ...] = ()
        namespace = await self._namespace(allocation) if allocation else ""
        if allocation is not None and namespace:
            ranks = self.ledger.ranks(job_id, place)
            names = tuple(rendering.pod_name(allocation.identity, rank) for rank in ranks)
        await release.remove_from_node(
            job_id,
            place,
            names=names,
            waiting=allocation is None or self.ledger.holds(job_id, node),
            cluster=self.cluster,
            namespace=namespace,
            kube=self.kube,
            pods=self.pods,
        )

    async def _namespace(self, allocation: jobs.Allocation) -> str:
        """Where the job's pods are; nothing when there is no place for them, and so no pods."""
        try:
            return rendering.namespace_of(await self.owners.of_job(allocation), self.settings)
        except errors.UsageError:
            return ""
