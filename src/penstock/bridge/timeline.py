"""What happened to a job, step by step, for people: in memory, latest jobs only, never relied upon."""

from __future__ import annotations

import collections
from collections.abc import Callable

from penstock.model.audits import End
from penstock.model.views import REFUSED, StepView

LATEST_JOBS = 5000
LATEST_STEPS = 200  # of one job: it may be refused for days


class Timeline:
    """Steps by job; the longest untouched job is forgotten first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._jobs: collections.OrderedDict[int, collections.deque[StepView]] = collections.OrderedDict()
        self._owners: dict[int, int] = {}
        self._ends: dict[int, End] = {}

    def own(self, job_id: int, uid: int) -> None:
        """The job is this user's, who may read about it."""
        self._owners[job_id] = uid

    def owner(self, job_id: int) -> int | None:
        return self._owners.get(job_id)

    def note(self, job_id: int, name: str, text: str = "") -> None:
        """This happened to the job just now."""
        steps = self._jobs.setdefault(job_id, collections.deque(maxlen=LATEST_STEPS))
        steps.append(StepView(at=self._now(), name=name, text=text))
        self._jobs.move_to_end(job_id)
        while len(self._jobs) > LATEST_JOBS:
            forgotten, _ = self._jobs.popitem(last=False)
            self._owners.pop(forgotten, None)
            self._ends.pop(forgotten, None)

    def ended(self, end: End) -> None:
        """The launcher is being told that end: what Slurm's record has to say."""
        self._ends[end.job_id] = end

    def ends(self) -> tuple[End, ...]:
        return tuple(self._ends.values())

    def of(self, job_id: int) -> tuple[StepView, ...]:
        return tuple(self._jobs.get(job_id, ()))

    def waits_for(self, job_id: int) -> str:
        """Why it was sent back to the queue, if nothing has happened to it since."""
        steps = self._jobs.get(job_id)
        return steps[-1].text if steps and steps[-1].name == REFUSED else ""

    def waiting(self) -> tuple[int, ...]:
        """Jobs that were sent back to the queue and have not been heard of since."""
        return tuple(filter(self.waits_for, self._jobs))

    def seconds_between(self, job_id: int, first: str, last: str) -> float | None:
        """From the latest `first` to the latest `last`, when both happened in that order."""
        latest = {step.name: step.at for step in self._jobs.get(job_id, ())}
        if first not in latest or last not in latest or latest[last] < latest[first]:
            return None
        return latest[last] - latest[first]
