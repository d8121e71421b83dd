"""Launch: creates a job's pods for its launcher, or finds them again after a crash.

API errors do not end a job: they are tried again for as long as Slurm lets the job run. A launcher's identity
comes from the kernel and from Slurm, never from a message.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math

from penstock import crashpoints, errors, joblog
from penstock.bridge import (
    admission,
    attemptfiles,
    confirmation,
    gang,
    introductions,
    owners,
    placement,
    podrequests,
    protocols,
    slurmcalls,
)
from penstock.bridge.context import Context
from penstock.kube import podview, types
from penstock.model import jobs, launches, sentences
from penstock.model.reasons import Outcome, OutcomeKind, not_started
from penstock.render import pods as rendering

log = logging.getLogger(__name__)

FORBIDDEN_SECONDS = 30.0  # until a 403 is final: an API server that has just started forbids everything
FIRST_DELAY, LONGEST_DELAY = 0.2, 5.0  # seconds between two tries


class NotYours(errors.PenstockError):
    """The job does not run or belongs to another uid."""


@dataclasses.dataclass
class Launch:
    """One launcher's attempt, as launch, run and end share it."""

    launcher: protocols.Launcher
    allocation: jobs.Allocation
    request: launches.LaunchRequest
    announced: bool = False
    """The launcher was told that the script may run; from then on no other gang is created."""
    gang: tuple[types.Pod, ...] = ()
    placed: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    stopped: bool = False
    """The pod was deleted because Slurm wanted the job to end."""
    requeued: bool = False
    """Slurm accepted a requeue and will kill the launcher."""

    @property
    def identity(self) -> jobs.JobIdentity:
        return self.allocation.identity

    @property
    def job_id(self) -> int:
        return self.identity.job_id

    async def announce(self) -> None:
        self.announced = True
        await self.launcher.started()


class Launching:
    def __init__(
        self,
        context: Context,
        *,
        admitting: admission.Admission,
        maker: gang.GangMaker,
        placements: placement.Placements,
        attempts: attemptfiles.AttemptRecords,
        known: owners.Owners,
    ) -> None:
        self._context, self._admission, self._maker = context, admitting, maker
        self._placements, self._owners = placements, known
        self.attempts = attempts

    async def allocation_for(self, job_id: int, uid: int) -> jobs.Allocation:
        """The allocation of the uid's running job; raises NotYours."""
        allocation = self._context.store.reservation(job_id) or await self._allocation_from_slurm(job_id)
        if allocation is None or allocation.identity.uid != uid:
            raise NotYours(f"job {job_id} is not a running job of uid {uid}")
        return allocation

    async def _allocation_from_slurm(self, job_id: int) -> jobs.Allocation | None:
        live = await self._context.slurm.live_job(job_id)
        if live is None or not live.holds_resources:
            return None
        return (await self._context.slurm.details(job_id)).allocation(live.identity)

    # -- start -------------------------------------------------------------------------------------

    async def start(self, launch: Launch, *, attaching: bool) -> Outcome | None:
        """Create or find the gang, and place it. Returns an outcome if the gang is lost."""
        store, began = self._context.store, self._context.time.now()
        if attaching:
            store.reserve(launch.allocation)
        where = podrequests.unseen_workdir(launch.request, self._context.settings)
        store.note(launch.job_id, "attached" if attaching else "launched", where)
        launch.gang = await self._persist(launch)
        if not launch.gang:
            return await self.loss_of(launch.allocation)
        if attaching:
            await launch.announce()
        else:
            self._context.meter.started(self._context.time.now() - began)
            nodes = ", ".join(share.node for share in launch.allocation.shares)
            store.note(launch.job_id, "placed", nodes)
        launch.placed.set()
        crashpoints.reach("launch.told")
        return None

    async def _persist(self, launch: Launch) -> tuple[types.Pod, ...]:
        """Create or find the gang, trying again until the API has answered."""
        time, delay, forbidden = self._context.time, FIRST_DELAY, math.inf
        while True:
            try:
                if launch.announced:
                    return await self.attach(launch.allocation, launch.request)
                return await self.launch(
                    launch.allocation, launch.request, lambda: self._before_script(launch)
                )
            except (errors.KubeUnavailable, errors.KubeNotAllowed) as error:
                is_forbidden = isinstance(error, errors.KubeNotAllowed)
                forbidden = min(forbidden, time.now()) if is_forbidden else math.inf
                if time.now() > forbidden + FORBIDDEN_SECONDS:
                    raise gang.GangRefused(not_started(OutcomeKind.API_REFUSED, error.message)) from error
                joblog.of(log, launch.job_id).warning("waits for the API: %s", error.message)
                await time.sleep(max(delay, error.retry_after))
                delay = min(delay * 2, LONGEST_DELAY)

    async def _before_script(self, launch: Launch) -> None:
        """Apply the owner's --no-requeue from here on: until now the job has only waited."""
        if not await self._may_run_twice(launch.allocation):
            await slurmcalls.set_requeue(self._context, launch.job_id, allowed=False)
        await launch.announce()

    async def _may_run_twice(self, allocation: jobs.Allocation) -> bool:
        """Whether the job may be requeued after its script has begun: --requeue, else Slurm's JobRequeue."""
        if allocation.requeue is not None:
            return allocation.requeue
        return (await self._context.slurm_facts.now()).requeues

    # -- make --------------------------------------------------------------------------------------

    async def launch(
        self, allocation: jobs.Allocation, request: launches.LaunchRequest, starting: gang.Starting
    ) -> tuple[types.Pod, ...]:
        """Create the gang; `starting` is awaited before its script can run."""
        identity = allocation.identity
        if self._context.store.reservation(identity.job_id) is None:
            await self._admit_late(identity)
        plan = await self._plan(allocation, request)
        self._context.store.job(identity.job_id).uid = identity.uid
        crashpoints.reach("launch.noted")
        made = await self._maker.create(plan, starting)
        meta = made[0].metadata
        joblog.of(log, identity.job_id).info("runs as %s/%s", meta.namespace, meta.name)
        return made

    async def _admit_late(self, identity: jobs.JobIdentity) -> None:
        """Admit a job whose PrologSlurmctld was killed: Slurm starts it all the same."""
        refusals = await self._admission.admit(identity)
        text = sentences.refusals(refusals)
        if admission.API_UNAVAILABLE in refusals:
            raise errors.KubeUnavailable(text)
        if refusals:
            raise gang.GangRefused(not_started(OutcomeKind.NOT_ADMITTED, text, requeue=True))

    async def _plan(self, allocation: jobs.Allocation, request: launches.LaunchRequest) -> gang.Plan:
        owner = await self._owners.of_job(allocation)
        output_dir = await self.attempts.begin(allocation, request)
        request = dataclasses.replace(request, output_dir=output_dir.encode())
        return gang.Plan(allocation=allocation, owner=owner, request=request)

    # -- find --------------------------------------------------------------------------------------

    async def attach(
        self, allocation: jobs.Allocation, request: launches.LaunchRequest
    ) -> tuple[types.Pod, ...]:
        """The gang of an attempt that was launched before; empty if it is not complete any more.

        Finishes the placement if penstockd was stopped between announcing the start and placing rank 0.
        """
        found, namespace = [], await self._owners.namespace(allocation, self._context.settings)
        if not namespace:
            return ()
        ranks = self._context.store.ranks(allocation.identity.job_id) or range(len(allocation.shares))
        for rank in ranks:
            pod = await self._pod_of(allocation.identity, rank, namespace)
            if pod is not None:
                found.append(pod)
            elif rank == 0:
                return ()
        is_placed = self._placements.of(allocation.partition).is_placed(found[0])
        if is_placed and await introductions.were_made(self._context, found[0], request.pod):
            return tuple(found)
        if len(found) < len(allocation.shares):
            return ()
        return await self._maker.complete(tuple(found), await self._plan(allocation, request))

    async def _pod_of(self, identity: jobs.JobIdentity, rank: int, namespace: str) -> types.Pod | None:
        """The attempt's pod of that rank, from the API."""
        pods = self._context.pods
        place, name = self._whereabouts(identity, rank, namespace)
        try:
            pod = await confirmation.pod(self._context.kube, place, name)
        except errors.KubeNotAllowed as error:  # the pod may run all the same
            raise errors.KubeUnavailable(error.message) from error
        if pod is None or not podview.belongs_to(pods.view(pod), identity):
            return None
        return pods.view(pod)

    def _whereabouts(self, identity: jobs.JobIdentity, rank: int, usual: str) -> tuple[str, str]:
        """Namespace and name of the attempt's pod. The cache comes first: naming rules, or the owner's name,
        may have changed since the pod was created.
        """
        name, pods = rendering.pod_name(identity, rank), self._context.pods
        if f"{usual}/{name}" not in pods.objects:
            for pod in pods.by(podview.BY_JOB, identity.job_id):
                if podview.belongs_to(pod, identity) and podview.rank(pod) == rank:
                    return pod.metadata.namespace, pod.metadata.name
        return usual, name

    async def loss_of(self, allocation: jobs.Allocation) -> Outcome:
        """The outcome of an attempt whose gang is lost: the recorded end, else what its placement tells."""
        seen = self.attempts.end_of(allocation.identity)
        return seen or await self._placements.of(allocation.partition).loss_of(allocation)
