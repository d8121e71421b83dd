"""The join of Slurm and Kubernetes: the services of the protocol's steps over one store of jobs.

docs/architecture.md walks a job through them. Each step may be asked again after a crash: what was done is
found, not repeated.
"""

from __future__ import annotations

import dataclasses

from penstock.bridge import (
    attemptfiles,
    drains,
    epilogs,
    gang,
    jobnamespaces,
    owners,
    placement,
    retries,
    sweeps,
)
from penstock.bridge.admission import Admission
from penstock.bridge.context import Context
from penstock.bridge.end import Ending
from penstock.bridge.follower import Follower
from penstock.bridge.launch import Launching
from penstock.bridge.release import Releasing
from penstock.bridge.run import Running
from penstock.bridge.session import Sessions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bridge:
    """What penstockd's socket and loops call."""

    context: Context
    admission: Admission
    launching: Launching
    sessions: Sessions
    releasing: Releasing
    steering: retries.Steering
    sweeper: sweeps.Sweeper
    drainer: drains.Drainer
    follower: Follower
    attempts: attemptfiles.AttemptRecords


def assemble(
    context: Context,
    *,
    partitions: frozenset[str],
    notes: epilogs.Notes,
    start_timeout: float,
    state_dir: str = "",
    results: str = "",
) -> Bridge:
    """All services; `partitions` are the bridged ones."""
    placements = placement.Placements(context)
    attempts = attemptfiles.AttemptRecords(context, state_dir=state_dir, results=results)
    known, follower = owners.Owners(), Follower(context, start_timeout)
    waiting = retries.Steering(context)
    homes = jobnamespaces.Namespaces(context.kube, context.settings)
    maker = gang.GangMaker(context, follower, homes, placements)
    admission = Admission(context, placements=placements, attempts=attempts, waiting=waiting)
    launching = Launching(
        context,
        admitting=admission,
        maker=maker,
        placements=placements,
        attempts=attempts,
        known=known,
    )
    ending = Ending(context, attempts)
    return Bridge(
        context=context,
        admission=admission,
        launching=launching,
        sessions=Sessions(context, launching, Running(context, follower), ending),
        releasing=Releasing(context, placements=placements, attempts=attempts, known=known),
        steering=waiting,
        sweeper=sweeps.Sweeper(context, attempts, waiting, partitions),
        drainer=drains.Drainer(context, placements, partitions, notes),
        follower=follower,
        attempts=attempts,
    )
