"""All that penstockd knows of jobs, by job and restart: one record for each, in memory.

Reservations (room promised from admission until the Epilog has seen the job's last pod go), launchers that
are connected, refusals, attempts under way, and what happened when. Nothing here is a truth of its own: after
a restart it is rebuilt from Slurm, Kubernetes and the records on the disk.
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

LATEST_JOBS = 5000  # that are remembered although nothing is under way for them
LATEST_STEPS = 200  # of one job: it may be refused for days


@dataclasses.dataclass
class Job:
    """One job, over all its attempts."""

    job_id: int
    uid: int | None = None
    """Its owner, who may read about it."""
    reserved: jobs.Allocation | None = None
    """The nodes that the attempt of now still has."""
    ranks: dict[str, int] = dataclasses.field(default_factory=dict)
    """By node, of the whole reservation."""
    is_leaving: bool = False
    """Slurm takes the nodes back."""
    is_admitting: bool = False
    """An admission is under way and has not been called off."""
    launchers: int = 0
    """Connected now: as long as one is, slurmd runs the job."""
    attempts: dict[int, Attempt] = dataclasses.field(default_factory=dict)
    """By restart: begun, and not handed over to the collector."""
    refusals: tuple[Refusal, ...] = ()
    """Why it was sent back to the queue, if nothing has happened to it since."""
    refused: int = 0
    """How often in a row."""
    end: End | None = None
    """What the launcher was told last."""
    steps: collections.deque[StepView] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=LATEST_STEPS)
    )

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost but memories."""
        return not (self.reserved or self.is_admitting or self.launchers or self.attempts)

    @property
    def attempt(self) -> Attempt | None:
        """The latest one under way."""
        return self.attempts[max(self.attempts)] if self.attempts else None

    def share_of(self, node: str) -> resources.Amount:
        """What it holds of a node."""
        shares = self.reserved.shares if self.reserved else ()
        return next((share.amount for share in shares if share.node == node), resources.Amount())


class Store:
    """Jobs by number; of idle ones the longest untouched is forgotten first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._jobs: collections.OrderedDict[int, Job] = collections.OrderedDict()
        self._on_node: dict[str, dict[int, resources.Amount]] = {}

    def job(self, job_id: int) -> Job:
        """The job's record, made if there is none."""
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
        """Promise the room; an earlier attempt's is given back."""
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
        """The ranks that the job was promised on the node, or on all."""
        job = self._jobs.get(job_id)
        return tuple(rank for place, rank in (job.ranks if job else {}).items() if node in ("", place))

    def leave(self, job_id: int, node: str) -> None:
        """Slurm takes this node back, and the others after it; an earlier attempt's node says nothing."""
        if self.holds(job_id, node):
            self._jobs[job_id].is_leaving = True

    def is_leaving(self, job_id: int) -> bool:
        job = self._jobs.get(job_id)
        return job is not None and job.is_leaving

    def holds(self, job_id: int, node: str) -> bool:
        """Whether the node is still the job's."""
        return job_id in self._on_node.get(node, {})

    def release(self, job_id: int, node: str) -> None:
        """The job is off this node."""
        allocation = self.reservation(job_id)
        if allocation is None:
            return
        left = tuple(share for share in allocation.shares if share.node != node)
        if left:
            self._book(self._jobs[job_id], dataclasses.replace(allocation, shares=left))
        else:
            self.unreserve(job_id)

    def unreserve(self, job_id: int) -> None:
        """The job holds nothing any more."""
        job = self._jobs.get(job_id)
        if job is not None:
            self._book(job, None)
            job.ranks, job.is_leaving = {}, False

    def share_of(self, job_id: int, node: str) -> resources.Amount:
        """What one job holds of a node."""
        job = self._jobs.get(job_id)
        return job.share_of(node) if job else resources.Amount()

    def reserved_on(self, node: str, *, besides: int) -> resources.Amount:
        """What all jobs but one hold of a node."""
        amounts = (amount for job_id, amount in self._on_node.get(node, {}).items() if job_id != besides)
        return sum(amounts, start=resources.Amount())

    # -- launchers ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def attending(self, job_id: int) -> Iterator[None]:
        """The job's launcher is connected."""
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
        """This happened to the job just now."""
        job = self.job(job_id)
        job.refusals = ()
        job.steps.append(StepView(at=self._now(), name=name, text=text, kind=kind))

    def note_refusal(self, job_id: int, refusals: tuple[Refusal, ...], text: str) -> None:
        """The job goes back to the queue."""
        job = self.job(job_id)
        job.refused += 1
        self.note(job_id, "refused", text, kind=refusals[0].kind)
        job.refusals = refusals
