"""How ended attempts ended, from Slurm: one sacct for all of them, slurmctld for those it does not tell."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock import errors
from penstock.model import jobs, states
from penstock.results.recordqueue import Head
from penstock.slurm import accounting

log = logging.getLogger(__name__)

ROW_SECONDS = 3.0
"""How long after an attempt's end its accounting row may be another's or still change."""
OWNER_SECONDS = 10.0
"""How long a short attempt's row may lack owner and array task: slurmctld reports them every 5 s."""
ASK_SECONDS = 30.0
"""How long slurmctld is asked in one round."""
LATE_SECONDS = 30.0
"""How long the row may be missing before slurmctld's memory, which holds less, is used instead."""


@dataclasses.dataclass
class _Controller:
    """slurmctld, asked about one attempt after the other.

    Not again in this round once it fails to answer, nor after the deadline, because the loop waits meanwhile.
    The rest is asked in the next round.
    """

    slurm_conf: str
    until: float
    is_available: bool = True

    async def record(self, head: Head) -> jobs.JobRecord | None:
        """What it remembers of the attempt. Raises SlurmUnavailable if that is unknown now."""
        if not self.is_available:
            raise errors.SlurmUnavailable("slurmctld is not asked again in this round")
        self.is_available = False
        try:
            found = await accounting.remembered(
                self.slurm_conf, head.job_id, uid=head.uid, restart=head.restart
            )
        except errors.SlurmUnavailable as error:
            log.warning("cannot ask slurmctld how jobs ended: %s", error.message)
            raise
        self.is_available = time.monotonic() < self.until
        return found


async def ended(slurm_conf: str, chosen: Mapping[str, Head], now: float) -> dict[str, jobs.JobRecord]:
    """Slurm's records of these attempts, by name; those that are not final yet are missing."""
    controller = _Controller(slurm_conf, time.monotonic() + ASK_SECONDS)
    rows: Sequence[jobs.JobRecord] | None = None
    try:
        rows = await accounting.ended(slurm_conf, sorted({head.job_id for head in chosen.values()}))
    except errors.SlurmError as error:
        log.debug("no accounting: %s", error.message)
    found: dict[str, jobs.JobRecord] = {}
    for name, head in chosen.items():
        waited = now - head.closed
        try:
            row = await _row(controller, rows, head, waited=waited)
        except errors.SlurmUnavailable as error:
            log.debug("job %d: %s", head.job_id, error.message)
            continue
        if row is not None and (waited >= ROW_SECONDS or not row.may_change):
            found[name] = row
    return found


async def _row(
    controller: _Controller, rows: Sequence[jobs.JobRecord] | None, head: Head, *, waited: float
) -> jobs.JobRecord | None:
    """Without accounting slurmctld's memory is all there is; with it, a missing row may still come."""
    if rows is None:
        return await controller.record(head)
    row = accounting.attempt_among(rows, job_id=head.job_id, uid=head.uid, launched=head.launched)
    if row is None and waited >= ROW_SECONDS:
        return await _without_own_row(controller, rows, head, waited=waited)
    return row


async def _without_own_row(
    controller: _Controller, rows: Iterable[jobs.JobRecord], head: Head, *, waited: float
) -> jobs.JobRecord | None:
    """A row without owner, or slurmctld's word that the attempt was requeued.

    A requeued attempt cannot wait: the next one overwrites its output. Of other ends slurmctld is believed
    only if accounting is late: it forgets them soon, but may be the only one to know. It always knows the
    name of an array task.
    """
    row = accounting.attempt_among(
        rows, job_id=head.job_id, uid=accounting.OWNER_UNKNOWN, launched=head.launched
    )
    known = await controller.record(head)
    if row is not None and waited >= OWNER_SECONDS:
        name = known.shown_id if known is not None else row.shown_id
        return msgspec.structs.replace(row, uid=head.uid, shown_id=name)
    believed = known is not None and (waited >= LATE_SECONDS or known.state == states.JobState.REQUEUED)
    return known if believed else None
