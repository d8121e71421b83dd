"""All that penstockd knows of jobs, in memory.

Reservations (from admission until the Epilog has seen the job's last pod go), connected launchers, refusals,
attempts and timelines. After a restart it is rebuilt from Slurm, Kubernetes and the records on disk.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator

from penstock.model import jobs, resources
from penstock.model.attempts import Attempt
from penstock.model.audits import End
from penstock.model.descriptions import StepView
from penstock.model.reasons import Refusal

LATEST_JOBS = 5000  # kept; only idle ones are forgotten
LATEST_STEPS = 200  # kept of one job: it may be refused for days


@dataclasses.dataclass
class Job:
    """One job with all its attempts."""

    job_id: int
    uid: int | None = None
    """Its owner, who may see it."""
    reserved: jobs.Allocation | None = None
    """What the current attempt still has."""
    ranks: dict[str, int] = dataclasses.field(default_factory=dict)
    """By node, of the reservation as it was made."""
    is_leaving: bool = False
    """Slurm is taking the nodes back."""
    is_admitting: bool = False
    """An admission is in progress and was not cancelled."""
    launchers: int = 0
    """Connected launchers: while there is one, slurmd runs the job."""
    attempts: dict[int, Attempt] = dataclasses.field(default_factory=dict)
    """By restart count; those not yet handed over to the collector."""
    refusals: tuple[Refusal, ...] = ()
    """Of the last admission, if nothing has happened to the job since."""
    refused: int = 0
    """Refusals in a row."""
    end: End | None = None
    """What the launcher was told last."""
    steps: collections.deque[StepView] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=LATEST_STEPS)
    )

    @property
    def is_idle(self) -> bool:
        """Whether the job may be forgotten."""
        return not (self.reserved or self.is_admitting or self.launchers or self.attempts)

    @property
    def attempt(self) -> Attempt | None:
        """The latest one that is not handed over."""
        return self.attempts[max(self.attempts)] if self.attempts else None

    def share_of(self, node: str) -> resources.Amount:
        shares = self.reserved.shares if self.reserved else ()
        return next((share.amount for share in shares if share.node == node), resources.Amount())


class Store:
    """Jobs by id; the least recently used idle ones are forgotten first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._jobs: collections.OrderedDict[int, Job] = collections.OrderedDict()
        self._on_node: dict[str, dict[int, resources.Amount]] = {}

    def job(self, job_id: int) -> Job:
        """The job's record, created if it is missing."""
        found = self._jobs.get(job_id)
        if found is None:
            self._forget_the_oldest()
            found = self._jobs[job_id] = Job(job_id)
        else:
            self._jobs.move_to_end(job_id)
        return found

    def _forget_the_oldest(self) -> None:
        too_many = max(len(self._jobs) - LATEST_JOBS + 1, 0)
        for job_id in tuple(itertools.islice(self._jobs, too_many)):
            if self._jobs[job_id].is_idle:
                del self._jobs[job_id]

    def find(self, job_id: int) -> Job | None:
        return self._jobs.get(job_id)

    def all(self) -> tuple[Job, ...]:
        return tuple(self._jobs.values())

    # -- reservations ------------------------------------------------------------------------------

    def reserve(self, allocation: jobs.Allocation) -> None:
        """Reserve room, in place of the job's earlier reservation."""
        job = self.job(allocation.identity.job_id)
        if job.reserved is None or job.reserved.identity != allocation.identity:
            job.is_leaving = False
        self._book(job, allocation)
        job.ranks = {share.node: rank for rank, share in enumerate(allocation.shares)}

    def _book(self, job: Job, allocation: jobs.Allocation | None) -> None:
        for share in job.reserved.shares if job.reserved else ():
            self._on_node[share.node].pop(job.job_id, None)
        job.reserved = allocation
        for share in allocation.shares if allocation else ():
            self._on_node.setdefault(share.node, {})[job.job_id] = share.amount

    def reservation(self, job_id: int) -> jobs.Allocation | None:
        job = self._jobs.get(job_id)
        return job.reserved if job else None

    def reservations(self) -> tuple[jobs.Allocation, ...]:
        return tuple(job.reserved for job in self._jobs.values() if job.reserved)

    def ranks(self, job_id: int, node: str = "") -> tuple[int, ...]:
        """The job's ranks on the node, or on all nodes."""
        job = self._jobs.get(job_id)
        return tuple(rank for place, rank in (job.ranks if job else {}).items() if node in ("", place))

    def leave(self, job_id: int, node: str) -> None:
        """Slurm is taking the job's nodes back, this one first. Ignored for nodes of an earlier attempt."""
        if self.holds(job_id, node):
            self._jobs[job_id].is_leaving = True

    def is_leaving(self, job_id: int) -> bool:
        job = self._jobs.get(job_id)
        return job is not None and job.is_leaving

    def holds(self, job_id: int, node: str) -> bool:
        return job_id in self._on_node.get(node, {})

    def release(self, job_id: int, node: str) -> None:
        allocation = self.reservation(job_id)
        if allocation is None:
            return
        left = tuple(share for share in allocation.shares if share.node != node)
        if left:
            self._book(self._jobs[job_id], dataclasses.replace(allocation, shares=left))
        else:
            self.unreserve(job_id)

    def unreserve(self, job_id: int) -> None:
        job = self._jobs.get(job_id)
        if job is not None:
            self._book(job, None)
            job.ranks, job.is_leaving = {}, False

    def share_of(self, job_id: int, node: str) -> resources.Amount:
        job = self._jobs.get(job_id)
        return job.share_of(node) if job else resources.Amount()

    def reserved_on(self, node: str, *, besides: int) -> resources.Amount:
        """Reservations on a node of all jobs but one."""
        amounts = (amount for job_id, amount in self._on_node.get(node, {}).items() if job_id != besides)
        return sum(amounts, start=resources.Amount())

    # -- launchers ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def attending(self, job_id: int) -> Iterator[None]:
        """Count a connected launcher."""
        job = self.job(job_id)
        job.launchers += 1
        try:
            yield
        finally:
            job.launchers -= 1

    def is_attended(self, job_id: int) -> bool:
        job = self._jobs.get(job_id)
        return job is not None and bool(job.launchers)

    # -- what happened -----------------------------------------------------------------------------

    def note(self, job_id: int, name: str, text: str = "", *, kind: str = "") -> None:
        """Add to the job's timeline."""
        job = self.job(job_id)
        job.refusals = ()
        job.steps.append(StepView(at=self._now(), name=name, text=text, kind=kind))

    def note_refusal(self, job_id: int, refusals: tuple[Refusal, ...], text: str) -> None:
        """Add a refusal to the job's timeline."""
        job = self.job(job_id)
        job.refused += 1
        self.note(job_id, "refused", text, kind=refusals[0].kind)
        job.refusals = refusals
