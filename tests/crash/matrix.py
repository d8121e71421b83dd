"""The crash matrix: who is killed at which step of which job, and what may come of it.

`as it should`: the job ends as if nobody had been killed. `killed`: the batch process itself was killed, and
Slurm's record says so (signal 9). `cluster lost`: the dev cluster forgets everything when it is killed, so
that the job is gone and says so. `no job`: sbatch failed, and said so.
"""

from __future__ import annotations

import dataclasses

HOOKS = ("launcher", "prolog", "epilog")
AS_IT_SHOULD, KILLED, CLUSTER_LOST, NO_JOB = "as it should", "killed", "cluster lost", "no job"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One crash."""

    point: str
    victim: str
    shape: str = "plain"
    ends: tuple[str, ...] = (AS_IT_SHOULD,)
    quick: bool = False
    """Whether it is one of the few that every run of the tests includes."""

    @property
    def name(self) -> str:
        return f"{self.point}-{self.victim}-{self.shape}"

    @property
    def dies_there(self) -> bool:
        """Whether the victim is who reaches the step; else that one waits while the victim is killed."""
        return self.victim in HOOKS or (self.victim == "penstockd" and not self.point.startswith(HOOKS))


def _rows() -> tuple[Row, ...]:
    return (*_penstockd(), *_hooks(), *_slurm(), *_api())


def _penstockd() -> tuple[Row, ...]:
    steps = {
        "admit.asked": "plain",
        "admit.held": "plain",
        "admit.answered": "plain",
        "admit.refused": "refused",
        "launch.asked": "plain",
        "launch.namespace-made": "plain",
        "launch.a-pod-made": "gang",
        "launch.pods-made": "gang",
        "launch.secret-made": "plain",
        "launch.another-bound": "gang",
        "launch.others-run": "gang",
        "launch.all-bound": "plain",
        "launch.told": "streamed",
        "run.output-sent": "streamed",
        "run.output-written": "streamed",
        "signal.received": "signalled",
        "signal.delivered": "signalled",
        "end.seen": "plain",
        "end.commented": "deleted",
        "end.requeued": "evicted",
        "end.told": "plain",
        "release.asked": "cancelled",
        "release.deleted": "plain",
        "release.gone": "gang",
        "release.done": "plain",
        "release.answered": "requeued",
        "recover.held": "recovered",
        "sweep.found": "beside",
    }
    quick = {"admit.held", "launch.another-bound", "run.output-sent", "release.deleted"}
    return tuple(
        Row(point=point, victim="penstockd", shape=shape, quick=point in quick)
        for point, shape in steps.items()
    )


def _hooks() -> tuple[Row, ...]:
    killed = (KILLED,)
    return (
        Row(point="launcher.asking", victim="launcher", ends=killed),
        Row(point="launcher.asked", victim="launcher", ends=killed, shape="gang"),
        Row(point="launcher.started", victim="launcher", ends=killed, quick=True),
        Row(point="launcher.writing", victim="launcher", ends=killed, shape="streamed"),
        Row(point="launcher.ending", victim="launcher", ends=killed),
        Row(point="prolog.asking", victim="prolog"),
        Row(point="prolog.asking", victim="prolog", shape="refused"),
        Row(point="prolog.answered", victim="prolog", quick=True),
        Row(point="epilog.asking", victim="epilog"),
        Row(point="epilog.answered", victim="epilog", shape="gang"),
    )


def _slurm() -> tuple[Row, ...]:
    return (
        Row(point="submit.asked", victim="slurmctld", shape="unanswered", ends=(NO_JOB,)),
        Row(point="prolog.asking", victim="slurmctld"),
        Row(point="admit.held", victim="slurmctld"),
        Row(point="launch.pods-made", victim="slurmctld", shape="gang"),
        Row(point="launch.told", victim="slurmctld", quick=True),
        Row(point="end.seen", victim="slurmctld"),
        Row(point="epilog.asking", victim="slurmctld"),
        Row(point="release.gone", victim="slurmctld"),
        Row(point="launcher.asking", victim="slurmd"),
        Row(point="launch.told", victim="slurmd"),
        Row(point="launcher.ending", victim="slurmd"),
        Row(point="epilog.asking", victim="slurmd"),
        Row(point="release.deleted", victim="slurmd"),
    )


def _api() -> tuple[Row, ...]:
    lost = (AS_IT_SHOULD, CLUSTER_LOST)
    return (
        Row(point="admit.held", victim="api"),
        Row(point="launch.pods-made", victim="api", shape="gang"),
        Row(point="launch.secret-made", victim="api", ends=lost),
        Row(point="launch.told", victim="api", ends=lost),
        Row(point="end.seen", victim="api"),
        Row(point="release.deleted", victim="api", quick=True),
    )


ROWS = _rows()
