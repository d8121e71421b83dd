"""The crash matrix: victim, step, job and allowed outcome.

`as it should`: the job ends as without a kill. `killed`: the batch process itself was killed, and Slurm's
record says so (signal 9); of an array, only that process's task. `pods lost`: the pods disappeared unobserved
(the dev cluster loses its state when it is killed), and the job says so. `no job`: sbatch failed with an
error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

HOOKS = ("launcher", "prolog", "epilog")
AS_IT_SHOULD, KILLED, PODS_LOST, NO_JOB = "as it should", "killed", "pods lost", "no job"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    point: str
    victim: str
    shape: str = "plain"
    ends: tuple[str, ...] = (AS_IT_SHOULD,)
    quick: bool = False
    """Whether it is part of `make test`."""

    @property
    def name(self) -> str:
        return f"{self.point}-{self.victim}-{self.shape}"

    @property
    def dies_there(self) -> bool:
        """Whether the victim itself reaches the step; else another process waits there while it is killed."""
        return self.victim in HOOKS or (self.victim == "penstockd" and not self.point.startswith(HOOKS))

    @property
    def inside_slurmctld(self) -> bool:
        """Whether job_submit.lua reaches the step, which cannot tell its pid."""
        return self.point.startswith("submit.")

    def allows(self, ends: Sequence[str]) -> bool:
        """Whether a job's tasks may end like this: a kill of one task must not affect the others."""
        odd = [end for end in ends if end != AS_IT_SHOULD]
        return set(odd) <= set(self.ends) and (AS_IT_SHOULD in self.ends or len(odd) == 1)


def _each(victim: str, shape: str, *points: str, ends: tuple[str, ...] = (AS_IT_SHOULD,)) -> Iterator[Row]:
    for point in points:
        yield Row(point=point, victim=victim, shape=shape, ends=ends, quick=(point, victim, shape) in QUICK)


QUICK = {
    ("admit.held", "penstockd", "plain"),
    ("launch.another-bound", "penstockd", "gang"),
    ("run.output-sent", "penstockd", "streamed"),
    ("release.deleted", "penstockd", "array"),
    ("launcher.started", "launcher", "array"),
    ("prolog.answered", "prolog", "plain"),
    ("launch.told", "slurmctld", "plain"),
    ("release.deleted", "api", "plain"),
}


def _penstockd() -> Iterator[Row]:
    me = "penstockd"
    yield from _each(me, "plain", "admit.asked", "admit.held", "admit.answered")
    yield from _each(me, "refused", "admit.refused", "admit.commented")
    yield from _each(me, "plain", "launch.asked", "launch.noted")
    yield from _each(me, "first", "launch.namespace-bare", "launch.namespace-made")
    yield from _each(me, "gang", "launch.a-pod-made", "launch.pods-made", "launch.another-bound")
    yield from _each(me, "gang", "launch.others-run", "launch.others-told", "launch.announced")
    yield from _each(me, "gang", "launch.all-bound")
    yield from _each(me, "plain", "launch.secret-made", "launch.announced", "launch.all-bound")
    yield from _each(me, "half-refused", "refuse.one-removed")
    yield from _each(me, "streamed", "launch.told", "run.output-sent", "run.output-written")
    yield from _each(me, "signalled", "signal.received", "signal.delivered")
    yield from _each(me, "plain", "end.seen", "end.told")
    yield from _each(me, "deleted", "end.noted", "end.commented")
    yield from _each(me, "evicted", "end.seen", ends=(AS_IT_SHOULD, PODS_LOST))
    yield from _each(me, "evicted", "end.noted", "end.commented", "end.requeued")
    yield from _each(me, "plain", "release.deleted", "release.freed", "release.written", "release.done")
    yield from _each(me, "gang", "release.gone")
    yield from _each(me, "stuck", "drain.done")
    yield from _each(me, "drained", "lift.clean")
    yield from _each(me, "recovered", "start.bound", "recover.held")
    yield from _each(me, "beside", "sweep.found")
    yield from _each(me, "cancelled", "signal.received", "release.asked", "release.gone")
    yield from _each(me, "cancelled there", "admit.asked", "admit.held", "launch.pods-made")
    yield from _each(me, "cancelled there", "launch.announced", "launch.told")
    yield from _each(me, "requeued", "signal.received", "release.deleted", "release.answered")
    yield from _each(me, "requeued there", "admit.held", "launch.pods-made", "launch.told")
    yield from _each(me, "array", "admit.held", "launch.pods-made", "launch.told", "release.deleted")
    yield from _each(me, "cancelled array", "release.asked")
    yield from _each(me, "requeued array", "release.gone")


def _hooks() -> Iterator[Row]:
    killed = (KILLED,)
    yield from _each(
        "launcher", "plain", "launcher.asking", "launcher.started", "launcher.ending", ends=killed
    )
    yield from _each("launcher", "gang", "launcher.asked", ends=killed)
    yield from _each("launcher", "streamed", "launcher.writing", ends=killed)
    yield from _each("launcher", "array", "launcher.started", ends=killed)
    yield from _each("launcher", "cancelled", "launcher.signalled")
    yield from _each("launcher", "cancelled there", "launcher.asking")
    yield from _each("launcher", "requeued there", "launcher.started")
    yield from _each("prolog", "plain", "prolog.asking", "prolog.answered")
    yield from _each("prolog", "refused", "prolog.asking")
    yield from _each("prolog", "array", "prolog.asking", "prolog.answered")
    yield from _each("prolog", "cancelled there", "prolog.asking", "prolog.answered")
    yield from _each("prolog", "requeued there", "prolog.answered")
    yield from _each("epilog", "plain", "epilog.asking")
    yield from _each("epilog", "gang", "epilog.answered")
    yield from _each("epilog", "array", "epilog.asking")
    yield from _each("epilog", "stuck", "epilog.abandoning")
    yield from _each("epilog", "cancelled", "epilog.asking")
    yield from _each("epilog", "requeued", "epilog.answered")


def _slurm() -> Iterator[Row]:
    yield from _each("slurmctld", "unanswered", "submit.asked", ends=(NO_JOB,))
    yield from _each("slurmctld", "plain", "prolog.asking", "admit.held", "launch.told", "end.seen")
    yield from _each("slurmctld", "plain", "epilog.asking", "release.gone")
    yield from _each("slurmctld", "gang", "launch.pods-made")
    yield from _each("slurmctld", "array", "admit.held", "launch.pods-made", "release.deleted")
    yield from _each("slurmctld", "cancelled", "release.asked")
    yield from _each("slurmctld", "cancelled there", "launch.told")
    yield from _each("slurmctld", "requeued", "release.gone")
    yield from _each("slurmd", "plain", "launcher.asking", "launch.told", "launcher.ending")
    yield from _each("slurmd", "plain", "epilog.asking", "release.deleted")
    yield from _each("slurmd", "array", "launch.told", "release.deleted")
    yield from _each("slurmd", "cancelled there", "launch.told")
    yield from _each("slurmd", "requeued", "release.deleted")


def _api() -> Iterator[Row]:
    lost = (AS_IT_SHOULD, PODS_LOST)
    yield from _each("api", "plain", "admit.held", "end.seen", "release.deleted")
    yield from _each("api", "gang", "launch.pods-made")
    yield from _each("api", "plain", "launch.secret-made", "launch.told", ends=lost)
    yield from _each("api", "array", "admit.held", "release.deleted", ends=lost)
    yield from _each("api", "cancelled", "release.deleted")
    yield from _each("api", "cancelled there", "launch.told")
    yield from _each("api", "requeued", "release.deleted")


ROWS = (*_penstockd(), *_hooks(), *_slurm(), *_api())
