"""A job as Slurm knows it: its attempt and owner, slurmctld's data, its allocation, its accounting record."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping

import msgspec

from penstock import wellknown
from penstock.model import comments, numbers, resources, states


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobIdentity:
    """One attempt of a job and its user, as Slurm told PrologSlurmctld or squeue."""

    job_id: int
    restart: int
    uid: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeShare:
    """A job's share of one node."""

    node: str
    amount: resources.Amount
    gpus_by_type: resources.Devices = ()  # GPUs by Slurm's type, if the job's GRES have one

    @property
    def gpu_types(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.gpus_by_type)

    def in_kubernetes(self, gpu_resources: Mapping[str, str]) -> NodeShare:
        """With GPUs under their types' resource names in Kubernetes."""
        counts: collections.Counter[str] = collections.Counter()
        for name, count in self.gpus_by_type:
            counts[gpu_resources.get(name, wellknown.GPU_RESOURCE)] += count
        del counts[wellknown.GPU_RESOURCE]
        gpus = self.amount.all_gpus - counts.total()
        found = dataclasses.replace(self.amount, gpus=gpus, devices=resources.devices(counts.items()))
        return dataclasses.replace(self, amount=found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Allocation:
    """Where an attempt runs, in the order of ranks: no users' text, nothing that changes while it runs."""

    identity: JobIdentity
    shares: tuple[NodeShare, ...]
    partition: str
    qos: str = ""
    account: str = ""
    gid: int | None = None
    """The group that the job was submitted with; None if Slurm does not tell: the user's own."""
    array: tuple[int, int] | None = None  # array id and task number of an array task
    submission: str = ""  # equal for all attempts, different if the job id is reused; "" if unknown
    requeue: bool | None = None  # whether its owner allows a second run; None for the site's default

    @property
    def shown_id(self) -> str:
        """20_3 for an array task, else the job id."""
        return "_".join(map(str, self.array)) if self.array else str(self.identity.job_id)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LiveJob:
    """What squeue tells of all jobs, every few seconds: no users' text, no names from a directory."""

    identity: JobIdentity
    state: str
    partition: str  # of a pending job possibly several, separated by commas

    @property
    def job_id(self) -> int:
        return self.identity.job_id

    @property
    def is_pending(self) -> bool:
        return self.state == states.JobState.PENDING

    @property
    def is_over(self) -> bool:
        """Whether it has ended or is ending: nothing may be started for it any more."""
        return self.state in states.ENDING

    @property
    def holds_resources(self) -> bool:
        """Its pods are legitimate while this is true."""
        return self.state in states.HOLDING


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(LiveJob):
    """A job in slurmctld's memory. Times are seconds since 1970, or 0."""

    shown_id: str = ""  # as users name it: 20_3 for an array task, 20_[4-9] for pending tasks together
    array: tuple[int, int] | None = None  # array id and task number of an array task
    user: str = ""  # only for people: a directory service may be slow
    name: str = ""
    gid: int | None = None
    account: str = ""
    qos: str = ""
    priority: int = 0
    reason: str = ""  # Slurm's Reason: what it waits for, or why it ended
    nodes: tuple[str, ...] = ()
    shares: tuple[NodeShare, ...] = ()  # per node; only from scontrol
    required: tuple[str, ...] = ()  # nodes requested by name
    is_fixed: bool = False  # it requests nodes by name or a reservation
    features: bool = False  # whether it requests any
    excluded: tuple[str, ...] = ()  # ExcNodeList: its owner's nodes and those that penstockd excludes
    submitted: int = 0  # changes with every requeue
    begins: int = 0  # when Slurm considers it again
    started: int = 0
    ended: int = 0  # only from scontrol
    elapsed: int | None = None  # seconds
    exit_code: int = 0
    signal: int = 0
    comment: str = ""
    may_go_back: bool = True  # whether Slurm would requeue it now rather than cancel it
    admin_comment: str = ""  # with the mark (slurm/marks.py), from which the following come
    prepared: bool = True  # whether our job_submit.lua has seen it: only then is our launcher its interpreter
    submission: str = ""  # when our job_submit.lua saw it: requeues do not change that
    requeue: bool | None = None  # the owner's choice at submission
    avoids: tuple[str, ...] = ()  # the part of `excluded` that is penstockd's
    until: int = 0  # until when penstockd makes it wait
    workdir: str = ""  # this and the job's files come only from scontrol
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended; an ending job has not."""
        return self.state not in states.OVER

    @property
    def task(self) -> str:
        """Its array task, or [4-9]; empty if it is not of an array."""
        return self.shown_id.partition("_")[2]

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(filter(None, self.partition.split(",")))

    @property
    def script_id(self) -> int:
        """The job id under which slurmctld keeps its script: its array's."""
        return self.array[0] if self.array else self.job_id

    @property
    def own_comment(self) -> str | None:
        """The owner's comment behind the reason of its wait; None if there is no such reason."""
        return comments.own(self.comment)

    @property
    def own_excluded(self) -> frozenset[str]:
        """The owner's part of `excluded`."""
        return frozenset(self.excluded) - frozenset(self.avoids)

    def share_of(self, node: str) -> resources.Amount:
        """What Slurm gave it of that node; zero if nothing."""
        return sum((share.amount for share in self.shares if share.node == node), resources.Amount())

    def in_kubernetes(self, gpu_resources: Mapping[str, str]) -> Job:
        """With GPUs under their types' resource names in Kubernetes."""
        shares = tuple(share.in_kubernetes(gpu_resources) for share in self.shares)
        return dataclasses.replace(self, shares=shares)

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


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt in the accounting, which counts no restarts: attempts differ in their start."""

    job_id: int
    shown_id: str  # 20_3 for an array task, 20_[5-9] for pending ones
    uid: int
    state: str
    end: str = msgspec.field(default="", name="exit_code")  # exit code and signal, as 7:0
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    elapsed: int | None = None
    account: str = ""
    partition: str = ""
    qos: str = ""
    user: str = ""
    name: str = ""
    nodes: tuple[str, ...] = ()
    comment: str = ""

    @property
    def exit_code(self) -> int | None:
        return numbers.natural(self.end.partition(":")[0])

    @property
    def signal(self) -> int | None:
        return numbers.natural(self.end.partition(":")[2])

    @property
    def may_change(self) -> bool:
        """For an end that Slurm caused, slurmdbd gets the state first and the exit code a moment later."""
        return self.state in states.CODE_COMES_LATER and self.end == "0:0"
