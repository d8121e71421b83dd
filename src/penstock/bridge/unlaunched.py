"""Jobs that slurmd could not start, as when the folder of --output is not there.

No launcher comes then, so nobody would say why: Slurm's record has FAILED 0:53 and no word. When such a job's
nodes are given back, slurmctld still knows its reason and its files. They become a record for the collector,
like that of any other attempt; it also writes the reason into the accounting, for slurmctld takes no comment
on a job that has ended.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock import errors
from penstock.model import jobs

if TYPE_CHECKING:
    from penstock.bridge import bridge as bridging

log = logging.getLogger(__name__)

IO_ERROR = 53  # the "signal" by which Slurm says that it could not open the script's files (ESLURMD_IO_ERROR)


async def note(bridge: bridging.Bridge, allocation: jobs.Allocation) -> None:
    """If the job whose nodes were given back is such a one, keep why."""
    identity = allocation.identity
    if bridge.attempts.has_begun(identity):
        return
    try:
        failed = await bridge.slurm.failed_launch(identity.job_id)
    except errors.SlurmError as error:
        log.warning("job %d was never launched, and why is not known: %s", identity.job_id, error.message)
        return
    if failed is None:
        return
    reason = words(failed, allocation.shares[0].node)
    log.info("job %d: %s", identity.job_id, reason)
    bridge.timeline.note(identity.job_id, "not started", reason)
    bridge.attempts.never_began(allocation, failed, reason)


def words(failed: jobs.FailedLaunch, node: str) -> str:
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
