"""Fakes of Slurm, Kubernetes and time."""

from __future__ import annotations

import asyncio
import dataclasses
import time as unix_time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock import errors, wellknown
from penstock.bridge import bridge as bridging
from penstock.bridge import context, drains, epilogs
from penstock.daemon import metrics
from penstock.kube import reflectors, types
from penstock.model import comments, jobs, launches, resources, sentences
from penstock.model.nodes import Drain, Node
from penstock.model.podpolicy import PartitionPolicy, PodPolicy
from penstock.model.reasons import Refusal, RefusalKind
from penstock.model.slurmfacts import SlurmFacts
from penstock.render import pods as rendering
from tests.unit.fakekube import FakeKube as FakeKube

SETTINGS = PodPolicy(default_image="site/default:1", shared_mounts=("/nas",), namespace_quota={})
OWNER = launches.Owner(name="alice", uid=1001, gid=1001, groups=(1001, 2000), home="/nas/home/alice")
REQUEST = launches.LaunchRequest(
    interpreter=b"/bin/bash",
    script=b"#!/lab/libexec/penstock-launch /bin/bash\n#SBATCH -n1\necho hello\n",
    arguments=(b"a", b"b c"),
    environment=(b"GREETING=it's me", b"PATH=/usr/bin", b"SLURM_JOB_ID=17"),
    workdir=b"/nas/home/alice",
    stdout=b"/nas/home/alice/slurm-17.out",
    stderr=b"/nas/home/alice/slurm-17.out",
)


async def nobody() -> None:
    """Accepts the start and does nothing."""


class ManualClock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)


def policy(partition: str, **keys: Any) -> PodPolicy:
    """The default policy with these keys for one partition."""
    return msgspec.structs.replace(SETTINGS, partitions={partition: PartitionPolicy(**keys)})


def identity(job_id: int = 17, *, restart: int = 0, uid: int = 1001) -> jobs.JobIdentity:
    return jobs.JobIdentity(job_id=job_id, restart=restart, uid=uid)


def job(job_id: int = 17, *, state: str = "PENDING", restart: int = 0, **facts: Any) -> jobs.Job:
    """A job in slurmctld's memory."""
    told = {"partition": "gpu", "shown_id": str(job_id), **facts}
    return jobs.Job(identity=identity(job_id, restart=restart), state=state, **told)


def amount(*, cpus: int = 0, gib: int = 0, gpus: int = 0) -> resources.Amount:
    return resources.Amount(millicpus=cpus * 1000, memory=gib * 2**30, gpus=gpus)


def allocation(
    job_id: int = 17,
    *,
    on: tuple[str, ...] = ("n1",),
    cpus: int = 2,
    gib: int = 4,
    gpus: int = 0,
    restart: int = 0,
) -> jobs.Allocation:
    share = amount(cpus=cpus, gib=gib, gpus=gpus)
    shares = tuple(jobs.NodeShare(node=node, amount=share) for node in on)
    return jobs.Allocation(
        identity=identity(job_id, restart=restart), shares=shares, partition="gpu", qos="normal"
    )


def node(
    name: str = "n1",
    *,
    cpus: int = 8,
    gib: int = 32,
    gpus: int = 4,
    ready: bool = True,
    cordoned: bool = False,
) -> types.Node:
    return types.Node(
        metadata=types.Meta(name=name),
        spec=types.NodeSpec(unschedulable=cordoned),
        status=types.NodeStatus(
            allocatable={"cpu": str(cpus), "memory": f"{gib}Gi", "nvidia.com/gpu": str(gpus)},
            conditions=[types.Condition(type="Ready", status="True" if ready else "False")],
        ),
    )


def pod(
    name: str = "notebook",
    *,
    on: str = "n1",
    cpus: str = "0",
    gpus: int = 0,
    job: jobs.JobIdentity | None = None,
    rank: int = 0,
    status: types.PodStatus | None = None,
    deleting: bool = False,
    version: str = "1",
) -> types.Pod:
    """A foreign pod, or one of ours if a job is given."""
    return types.Pod(
        metadata=types.Meta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            resource_version=version,
            labels=rendering.labels_of(job) | {wellknown.LABEL_RANK: str(rank)} if job else {},
            deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None,
        ),
        spec=types.PodSpec(
            node_name=on,
            containers=[
                types.Container(
                    name="c", resources=types.Requirements(requests={"cpu": cpus, "nvidia.com/gpu": gpus})
                )
            ],
        ),
        status=status or types.PodStatus(phase="Running"),
    )


def running() -> types.PodStatus:
    """Status of a pod whose job container runs."""
    state = types.ContainerState(running=types.Running())
    return types.PodStatus(
        phase="Running",
        pod_ip="10.0.0.1",
        container_statuses=[types.ContainerStatus(name="job", state=state)],
    )


def ended(exit_code: int, *, reason: str = "Error", message: str = "") -> types.PodStatus:
    """Status of a pod whose job container has ended."""
    end = types.Terminated(exit_code=exit_code, reason=reason, message=message)
    status = types.ContainerStatus(name="job", state=types.ContainerState(terminated=end))
    return types.PodStatus(phase="Failed" if exit_code else "Succeeded", container_statuses=[status])


class FakeSlurm:
    """Jobs in a dictionary."""

    def __init__(self) -> None:
        self.live: dict[int, jobs.LiveJob] = {}
        self.allocations: dict[int, jobs.Job] = {}
        self.comments: dict[int, str] = {}
        self.requeued: list[int] = []
        self.cancelled: list[int] = []
        self.never_again: set[int] = set()
        """Jobs with --no-requeue."""
        self.by_default = True
        """JobRequeue."""
        self.older: set[int] = set()
        """Jobs that were running when slurmctld was started."""
        self.failed: dict[int, jobs.Job] = {}
        """Jobs that slurmd could not start."""
        self.delays: dict[int, int] = {}
        """Seconds for which jobs were let wait; 0: they may go."""
        self.queue: dict[int, jobs.Job] = {}
        """Jobs that wait; every job does unless it is said."""
        self.priorities: dict[int, int] = {}
        self.stuck: set[int] = set()
        """Jobs for which Slurm has no node at all."""
        self.places: tuple[Node, ...] = ()
        self.reasons: dict[str, str] = {}
        self.since = 1000.0
        """When nodes were drained."""
        self.away = False
        self.forgets = False
        """Whether slurmctld dies before the next requeue is on its disk."""

    def add(self, allocation: jobs.Allocation, *, state: str = "RUNNING", partition: str = "gpu") -> None:
        job_id = allocation.identity.job_id
        self.live[job_id] = jobs.LiveJob(identity=allocation.identity, state=state, partition=partition)
        self.allocations[job_id] = jobs.Job(
            identity=allocation.identity,
            state=state,
            partition=partition,
            shares=allocation.shares,
            qos="normal",
        )

    def _check(self) -> None:
        if self.away:
            raise errors.SlurmUnavailable("squeue: Connection refused")

    async def live_jobs(self) -> tuple[jobs.LiveJob, ...]:
        self._check()
        return tuple(self.live.values())

    async def live_job(self, job_id: int) -> jobs.LiveJob | None:
        self._check()
        return self.live.get(job_id)

    async def details(self, job_id: int) -> jobs.Job:
        self._check()
        if job_id not in self.allocations:
            raise errors.SlurmError("scontrol shows no allocation for the job")
        return dataclasses.replace(self.allocations[job_id], comment=self.comments.get(job_id, ""))

    async def failed_launch(self, job_id: int) -> jobs.Job | None:
        self._check()
        return self.failed.get(job_id)

    async def set_comment(self, job_id: int, text: str) -> None:
        self._check()
        self.comments[job_id] = text

    async def say_why_it_waits(self, job_id: int, reason: str) -> None:
        self._check()
        self.comments[job_id] = comments.waiting(reason, self.comments.get(job_id, ""))

    async def requeue(self, job_id: int) -> None:
        self._check()
        if job_id in self.never_again:
            raise errors.SlurmError("Requested operation is presently disabled")
        self.requeued.append(job_id)
        if job_id in self.live and not self.forgets:
            self.live[job_id] = dataclasses.replace(self.live[job_id], state="COMPLETING")
        self.forgets = False

    async def facts(self) -> SlurmFacts:
        self._check()
        return SlurmFacts(cluster="lab", release=(22, 5), default_partition="gpu", requeues=self.by_default)

    async def set_requeue(self, job_id: int, *, allowed: bool) -> None:
        self._check()
        (self.never_again.discard if allowed else self.never_again.add)(job_id)

    async def let_wait(self, job_id: int) -> None:
        await self.set_requeue(job_id, allowed=True)
        self.allocations[job_id] = dataclasses.replace(self.allocations[job_id], requeue=False)

    async def cancel(self, job_id: int) -> None:
        self._check()
        self.cancelled.append(job_id)

    async def is_older_than_controller(self, job_id: int) -> bool:
        self._check()
        return job_id in self.older

    async def waiting(self, job_id: int) -> jobs.Job | None:
        self._check()
        return self.queue.get(job_id)

    async def queued(self, job_ids: Sequence[int]) -> tuple[jobs.Job, ...]:
        self._check()
        return tuple(
            job(
                job_id,
                priority=self.priorities.get(job_id, 0),
                reason="BadConstraints" if job_id in self.stuck else "BeginTime",
            )
            for job_id in job_ids
            if job_id in self.queue
        )

    async def put_off(self) -> tuple[int, ...]:
        self._check()
        return tuple(job_id for job_id, job in self.queue.items() if job.avoids or job.until)

    async def steer(self, job: jobs.Job, *, avoids: Collection[str], seconds: int | None, until: int) -> None:
        self._check()
        if seconds is not None:
            self.delays[job.job_id] = seconds
        excluded = tuple(sorted(job.own_excluded | frozenset(avoids)))
        self.queue[job.job_id] = dataclasses.replace(
            job,
            excluded=excluded,
            avoids=tuple(sorted(avoids)),
            until=until,
            begins=job.begins if seconds is None else until,
        )

    async def targets(self, partition: str) -> tuple[Node, ...]:
        self._check()
        return self.places

    async def drain(self, node: str, reason: str) -> None:
        self._check()
        self.reasons[node] = reason

    async def resume(self, node: str) -> None:
        self._check()
        del self.reasons[node]

    async def drained(self, partitions: Collection[str]) -> tuple[Drain, ...]:
        """Nodes named x… are in no bridged partition."""
        self._check()
        return tuple(
            Drain(node=node, reason=reason, since=self.since)
            for node, reason in self.reasons.items()
            if partitions and not node.startswith("x")
        )


def bridge(
    *,
    slurm: FakeSlurm,
    kube: FakeKube,
    pods: reflectors.Reflector[types.Pod],
    nodes: reflectors.Reflector[types.Node],
    time: ManualClock,
    wall_clock: Callable[[], float] = unix_time.time,
    start_timeout: float = 300,
    state_dir: str = "",
    results: str = "",
) -> bridging.Bridge:
    """All services over these fakes; partition gpu is bridged."""
    surroundings = context.Context(
        slurm=slurm,
        kube=kube,
        pods=pods,
        nodes=nodes,
        settings=SETTINGS,
        time=time,
        meter=metrics.Metrics(),
        wall_clock=wall_clock,
    )
    return bridging.assemble(
        surroundings,
        partitions=frozenset({"gpu"}),
        notes=epilogs.Notes(Path("/nowhere")),
        start_timeout=start_timeout,
        state_dir=state_dir,
        results=results,
    )


async def admit(bridge: bridging.Bridge, identity: jobs.JobIdentity) -> tuple[str, ...]:
    """The job's refusals as sentences."""
    return tuple(map(sentences.refusal, await bridge.admission.admit(identity)))


def said(kind: RefusalKind) -> tuple[str, ...]:
    """The sentence of a refusal of that kind."""
    return (sentences.refusal(Refusal(kind=kind)),)


async def namespace(bridge: bridging.Bridge, allocation: jobs.Allocation) -> str:
    """The namespace of the job's pods."""
    return await bridge.launching._owners.namespace(allocation, bridge.context.settings)


def reserved(bridge: bridging.Bridge) -> tuple[int, ...]:
    """Jobs with a reservation."""
    return tuple(one.identity.job_id for one in bridge.context.store.reservations())


def drainer(bridge: bridging.Bridge, notes: Path = Path("/nowhere")) -> drains.Drainer:
    """The bridge's Drainer, with the notes of Epilogs in that folder."""
    return dataclasses.replace(bridge.drainer, notes=epilogs.Notes(notes), obsolete={}, kept={})
