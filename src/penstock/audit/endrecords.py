"""I5, one record: Slurm's record of an ended job has its container's exit code, and the reason as comment.

The container's exit code is read from its pod while that exists, and from what penstockd told the launcher.
States that Slurm sets by itself (CANCELLED, TIMEOUT, NODE_FAIL …) are not judged, nor is signal 9: then the
launcher itself was killed, as root on the node can do.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.audit import snapshots
from penstock.judge import outcomes
from penstock.kube import podview
from penstock.model import jobs, states
from penstock.model.reasons import Outcome

Violation = snapshots.Violation
KILLED = 9


def judge(seen: snapshots.Snapshot) -> Iterator[Violation]:
    told = {(end.job_id, end.restart): end for end in (seen.daemon.ends if seen.daemon else ())}
    for job in seen.jobs.values():
        if job.state not in states.BY_ITSELF:
            continue
        end = told.get((job.job_id, job.identity.restart))
        if end is not None:
            yield from _against(job, (end.exit_code, end.signal), "penstockd told its launcher")
            yield from _reason(job, end.reason)
        for outcome in _ends_of_containers(seen, job):
            yield from _against(job, (outcome.exit_code, outcome.signal), "the container ended")


def _ends_of_containers(seen: snapshots.Snapshot, job: jobs.Job) -> Iterator[Outcome]:
    for pod in seen.pods_by_job.get(job.job_id, []):
        end = outcomes.own_end(pod)
        if end is not None and podview.rank(pod) == 0 and podview.belongs_to(pod, job.identity):
            yield end


def _against(job: jobs.Job, said: tuple[int, int], by_whom: str) -> Iterator[Violation]:
    exit_code, signal = (0, said[1]) if said[1] else said
    state = states.JobState.FAILED if exit_code or signal else states.JobState.COMPLETED
    same = (job.state, job.exit_code, job.signal) == (state, exit_code, signal)
    if not same and not (job.state == states.JobState.FAILED and job.signal == KILLED):
        yield Violation(
            invariant="I5",
            kind="another-end",
            subject=f"job {job.job_id} restart {job.identity.restart}",
            evidence=(
                f"Slurm: {job.state} {job.exit_code}:{job.signal}",
                f"{by_whom}: {state} {exit_code}:{signal}",
            ),
        )


def says(job: jobs.Job, reason: str) -> bool:
    """Whether the job's comment has the reason."""
    return _plain(reason) in _plain(job.comment)


def _reason(job: jobs.Job, reason: str) -> Iterator[Violation]:
    if not says(job, reason):
        yield Violation(
            invariant="I5",
            kind="reason-missing",
            subject=f"job {job.job_id} restart {job.identity.restart}",
            evidence=(f"reason: {reason}", f"Slurm's comment: {job.comment or 'none'}"),
        )


def _plain(text: str) -> str:
    return " ".join(text.split())
