"""A job as Slurm allocated it: what penstockd needs to turn it into pods. Numbers and node names only, no
text of the user's.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping

from penstock import wellknown
from penstock.model import resources, states


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobIdentity:
    """One attempt of one job of one user: what Slurm itself told PrologSlurmctld, or squeue tells us."""

    job_id: int
    restart: int
    uid: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeShare:
    """A job's share of one node."""

    node: str
    amount: resources.Amount
    gpus_by_type: resources.Devices = ()
    """GPUs by Slurm's name of their kind, where the job's GRES have one."""

    @property
    def gpu_types(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.gpus_by_type)

    def in_kubernetes(self, gpu_resources: Mapping[str, str]) -> NodeShare:
        """The share with its GPUs under the resource names that their types have there."""
        counts: collections.Counter[str] = collections.Counter()
        for name, count in self.gpus_by_type:
            counts[gpu_resources.get(name, wellknown.GPU_RESOURCE)] += count
        del counts[wellknown.GPU_RESOURCE]
        gpus = self.amount.all_gpus - counts.total()
        found = dataclasses.replace(self.amount, gpus=gpus, devices=resources.devices(counts.items()))
        return dataclasses.replace(self, amount=found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Allocation:
    """Where an attempt of a job runs; the order of the nodes is the order of ranks."""

    identity: JobIdentity
    shares: tuple[NodeShare, ...]
    partition: str
    qos: str = ""
    account: str = ""
    gid: int | None = None
    """The group that the job was submitted with; its user's own where Slurm does not tell."""
    array: tuple[int, int] | None = None
    """The array's id and the number of its task, where the job is one."""
    submission: str = ""
    """The same for all attempts of a job, another for one that gets its number later; empty if not known."""
    requeue: bool | None = None
    """Whether its owner lets it run twice; None: as the site has it. Until it starts it may go back."""

    @property
    def shown_id(self) -> str:
        """20_3 for a task of an array, else the job's number."""
        return "_".join(map(str, self.array)) if self.array else str(self.identity.job_id)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobDetails:
    """What Slurm tells of a running job."""

    shares: tuple[NodeShare, ...]
    partition: str
    qos: str
    state: str = ""
    account: str = ""
    gid: int | None = None
    prepared: bool = True
    """Whether our job_submit.lua has seen it: only then does our launcher stand before its script."""
    submitted: int = 0
    """Seconds since 1970, anew with every requeue; 0 where Slurm does not tell."""
    array: tuple[int, int] | None = None
    submission: str = ""
    """When our job_submit.lua saw it: requeues do not change that."""
    requeue: bool | None = None
    """What its owner said at submission."""
    avoids: tuple[str, ...] = ()
    """Nodes that penstockd has kept it from."""
    may_go_back: bool = True
    """Whether Slurm would send it back to the queue now, and not cancel it."""
    own_comment: str | None = None
    """What its owner wrote where the reason of its wait stands now; None: its comment is its owner's."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or is about to: nothing may be started for it any more."""
        return self.state in states.ENDING

    def allocation(self, identity: JobIdentity) -> Allocation:
        return Allocation(
            identity=identity,
            shares=self.shares,
            partition=self.partition,
            qos=self.qos,
            account=self.account,
            gid=self.gid,
            array=self.array,
            submission=self.submission,
            requeue=self.requeue,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A node that Slurm has for jobs, whole."""

    name: str
    amount: resources.Amount
    features: frozenset[str] = frozenset()
    is_up: bool = True
    """Whether Slurm starts jobs there at all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drain:
    """A node on which Slurm starts nothing new, as somebody wanted."""

    node: str
    reason: str
    since: float
    """When the reason was given, by slurmctld's clock; 0 when it does not say."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WaitingJob:
    """What slurmctld says of a job that is in the queue."""

    job_id: int
    admin_comment: str = ""
    excluded: tuple[str, ...] = ()
    """ExcNodeList: its owner's nodes and those that penstockd keeps it from."""
    avoids: tuple[str, ...] = ()
    """Of these, penstockd's."""
    until: int = 0
    """Until when penstockd lets it wait, in seconds since 1970; 0 when it does not."""
    begins: int = 0
    """When Slurm looks at it again; 0 when it may start at any time."""
    is_fixed: bool = False
    """It asks for nodes by name, or has a reservation."""
    features: bool = False

    @property
    def own_excluded(self) -> frozenset[str]:
        """Its owner's."""
        return frozenset(self.excluded) - frozenset(self.avoids)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Queued:
    """A line of the queue."""

    job_id: int
    priority: int
    reason: str
    is_pending: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class FailedLaunch:
    """A job that slurmd could not start: what slurmctld tells of it."""

    exit_code: int
    signal: int
    started: float
    """Seconds since 1970."""
    workdir: str = ""
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LiveJob:
    """A line of squeue: a job that Slurm still knows."""

    identity: JobIdentity
    state: str
    partition: str

    @property
    def holds_resources(self) -> bool:
        """While this is so its pods have a right to be there."""
        return self.state in states.HOLDING
