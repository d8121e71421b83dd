"""The services of penstockd over one store of jobs; docs/architecture.md walks a job through them.

Every step may be repeated after a crash: it finds what was done before.
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
from penstock.bridge.session import Sessions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bridge:
    """The services that penstockd's socket and loops call."""

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
    """Create all services; `partitions` are the bridged ones."""
    placements = placement.Placements(context)
    attempts = attemptfiles.AttemptRecords(context, state_dir=state_dir, results=results)
    known, follower = owners.Owners(), Follower(context, start_timeout)
    steering = retries.Steering(context)
    namespaces = jobnamespaces.Namespaces(context.kube, context.settings)
    maker = gang.GangMaker(context, follower, namespaces, placements)
    admission = Admission(context, placements=placements, attempts=attempts, steering=steering)
    launching = Launching(
        context,
        admitting=admission,
        maker=maker,
        placements=placements,
        attempts=attempts,
        known=known,
    )
    return Bridge(
        context=context,
        admission=admission,
        launching=launching,
        sessions=Sessions(context, launching, follower, Ending(context, attempts)),
        releasing=Releasing(context, placements=placements, attempts=attempts, known=known),
        steering=steering,
        sweeper=sweeps.Sweeper(context, attempts, steering, partitions),
        drainer=drains.Drainer(context, placements, partitions, notes),
        follower=follower,
        attempts=attempts,
    )
