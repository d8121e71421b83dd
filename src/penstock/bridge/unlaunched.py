"""Jobs that slurmd could not start, for example because the folder of --output does not exist.

No launcher connects then, and Slurm's record is FAILED 0:53 without a reason. At the job's release slurmctld
still knows its reason and its files, so an attempt is recorded for the collector. The collector also writes
the reason into accounting, because slurmctld accepts no comment for an ended job.
"""

from __future__ import annotations

import logging

from penstock import errors, joblog
from penstock.bridge import attemptfiles
from penstock.bridge.context import Context
from penstock.model import jobs
from penstock.model.reasons import Outcome, OutcomeKind

log = logging.getLogger(__name__)

IO_ERROR = 53  # the "signal" of a job whose files slurmd could not open (ESLURMD_IO_ERROR)


async def note(context: Context, attempts: attemptfiles.AttemptRecords, allocation: jobs.Allocation) -> None:
    """Record an attempt for a released job if slurmd could not start it."""
    identity = allocation.identity
    if attempts.find(identity) is not None:
        return
    try:
        failed = await context.slurm.failed_launch(identity.job_id)
    except errors.SlurmError as error:
        joblog.of(log, identity.job_id).warning(
            "was never launched, for an unknown reason: %s", error.message
        )
        return
    if failed is None:
        return
    reason = words(failed, allocation.shares[0].node)
    joblog.of(log, identity.job_id).info("%s", reason)
    kind = OutcomeKind.LAUNCH_FAILED
    context.store.note(identity.job_id, "not started", reason, kind=kind)
    outcome = Outcome(kind=kind, exit_code=failed.exit_code, signal=failed.signal, detail=reason)
    attempts.add_unlaunched(allocation, failed, outcome)


def words(failed: jobs.Job, node: str) -> str:
    """The reason, for the job's owner."""
    if failed.signal != IO_ERROR:
        end = f"{failed.exit_code}:{failed.signal}"
        return f"slurmd on {node} could not start it (JobLaunchFailure, {end}): its log there says why"
    named = [f"output {failed.stdout}"]
    if failed.stderr not in ("", failed.stdout):
        named.append(f"error {failed.stderr}")
    if failed.stdin not in ("", "/dev/null"):
        named.append(f"input {failed.stdin}")
    files = " or ".join(named)
    return f"slurmd on {node} could not open its {files}: is the folder there, and yours to write?"
