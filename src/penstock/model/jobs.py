"""A job as Slurm knows it: which attempt of whose it is, what slurmctld remembers, where it runs, and what
the accounting keeps.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping

import msgspec

from penstock import wellknown
from penstock.model import comments, numbers, resources, states


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
    """Where an attempt of a job runs; the order of the nodes is the order of ranks. Of a Job it has what pods
    are made of: no text of the user's, and nothing that changes while it runs.
    """

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
class LiveJob:
    """The least that squeue tells of a job. All jobs are asked for it every few seconds: it has no text of
    users', and no names for which a directory service would have to answer.
    """

    identity: JobIdentity
    state: str
    partition: str
    """Several, with commas, of a job that waits for any of them."""

    @property
    def job_id(self) -> int:
        return self.identity.job_id

    @property
    def is_pending(self) -> bool:
        return self.state == states.JobState.PENDING

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or is about to: nothing may be started for it any more."""
        return self.state in states.ENDING

    @property
    def holds_resources(self) -> bool:
        """While this is so its pods have a right to be there."""
        return self.state in states.HOLDING


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(LiveJob):
    """A job in slurmctld's memory. Times are seconds since 1970, 0 where there is none."""

    shown_id: str = ""
    """As people name it: 20_3 for a task of an array, 20_[4-9] for those that wait together."""
    array: tuple[int, int] | None = None
    """The array's id and the number of its task, where the job is one."""
    user: str = ""
    """Only told to people: a directory service may be slow."""
    name: str = ""
    gid: int | None = None
    account: str = ""
    qos: str = ""
    priority: int = 0
    reason: str = ""
    """Slurm's own word for what it waits for, or why it ended."""
    nodes: tuple[str, ...] = ()
    shares: tuple[NodeShare, ...] = ()
    """What it has of each node; only scontrol tells."""
    required: tuple[str, ...] = ()
    """Nodes that it asks for by name."""
    is_fixed: bool = False
    """It asks for nodes by name, or has a reservation."""
    features: bool = False
    """Whether it asks for some."""
    excluded: tuple[str, ...] = ()
    """ExcNodeList: its owner's nodes and those that penstockd keeps it from."""
    submitted: int = 0
    """Anew with every requeue."""
    begins: int = 0
    """When Slurm looks at it again."""
    started: int = 0
    ended: int = 0
    """Only scontrol tells."""
    elapsed: int | None = None
    """Seconds."""
    exit_code: int = 0
    signal: int = 0
    comment: str = ""
    may_go_back: bool = True
    """Whether Slurm would send it back to the queue now, and not cancel it."""
    admin_comment: str = ""
    """With the mark (slurm/marks.py) that says the following."""
    prepared: bool = True
    """Whether our job_submit.lua has seen it: only then does our launcher stand before its script."""
    submission: str = ""
    """When our job_submit.lua saw it: requeues do not change that."""
    requeue: bool | None = None
    """What its owner said at submission."""
    avoids: tuple[str, ...] = ()
    """Of `excluded`, penstockd's."""
    until: int = 0
    """Until when penstockd lets it wait."""
    workdir: str = ""
    """This and the job's files are told by scontrol alone."""
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended; one that is ending has not."""
        return self.state not in states.OVER

    @property
    def task(self) -> str:
        """Which of its array's tasks it is, or [4-9]; empty for none."""
        return self.shown_id.partition("_")[2]

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(filter(None, self.partition.split(",")))

    @property
    def script_id(self) -> int:
        """The job whose script slurmctld keeps for it: that of its array."""
        return self.array[0] if self.array else self.job_id

    @property
    def own_comment(self) -> str | None:
        """What its owner wrote where the reason of its wait stands now; None: its comment is its owner's."""
        return comments.own(self.comment)

    @property
    def own_excluded(self) -> frozenset[str]:
        """Its owner's."""
        return frozenset(self.excluded) - frozenset(self.avoids)

    def share_of(self, node: str) -> resources.Amount:
        """What Slurm gave it of that node; nothing when it gave none."""
        return sum((share.amount for share in self.shares if share.node == node), resources.Amount())

    def in_kubernetes(self, gpu_resources: Mapping[str, str]) -> Job:
        """The job with its GPUs under the resource names that their types have there."""
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
    """One attempt of a job in the accounting, which counts no restarts: attempts are told apart by when they
    started. The collector keeps it in a file. Times are seconds since 1970.
    """

    job_id: int
    shown_id: str
    """20_3 for a task of an array, 20_[5-9] for those that wait."""
    uid: int
    state: str
    end: str = msgspec.field(default="", name="exit_code")
    """Exit code and signal, as 7:0."""
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
        """Slurm tells of an end that it brought about itself first and of the exit code a moment later."""
        return self.state in states.CODE_COMES_LATER and self.end == "0:0"
