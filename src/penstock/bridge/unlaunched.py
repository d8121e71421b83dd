"""Jobs that slurmd could not start, as when the folder of --output is not there.

No launcher comes then, so nobody would say why: Slurm's record has FAILED 0:53 and no word. When such a job's
nodes are given back, slurmctld still knows its reason and its files. They become a record for the collector,
like that of any other attempt; it also writes the reason into the accounting, for slurmctld takes no comment
on a job that has ended.
"""

from __future__ import annotations

import logging

from penstock import errors, joblog
from penstock.bridge import attemptfiles
from penstock.bridge.context import Context
from penstock.model import jobs
from penstock.model.reasons import Outcome, OutcomeKind

log = logging.getLogger(__name__)

IO_ERROR = 53  # the "signal" by which Slurm says that it could not open the script's files (ESLURMD_IO_ERROR)


async def note(context: Context, attempts: attemptfiles.AttemptRecords, allocation: jobs.Allocation) -> None:
    """If the job whose nodes were given back is such a one, keep why."""
    identity = allocation.identity
    if attempts.find(identity) is not None:
        return
    try:
        failed = await context.slurm.failed_launch(identity.job_id)
    except errors.SlurmError as error:
        joblog.of(log, identity.job_id).warning("was never launched, and why is not known: %s", error.message)
        return
    if failed is None:
        return
    reason = words(failed, allocation.shares[0].node)
    joblog.of(log, identity.job_id).info("%s", reason)
    kind = OutcomeKind.LAUNCH_FAILED
    context.store.note(identity.job_id, "not started", reason, kind=kind)
    outcome = Outcome(kind=kind, exit_code=failed.exit_code, signal=failed.signal, detail=reason)
    attempts.never_began(allocation, failed, outcome)


def words(failed: jobs.Job, node: str) -> str:
    """For the job's owner."""
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
