"""I2, no orphans: every pod, Secret and reservation belongs to a live job, and a running job has its pods.

A job that is RUNNING in Slurm without pods keeps resources from others to no purpose.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock import wellknown
from penstock.audit import snapshots
from penstock.kube import podview
from penstock.model import jobs, states

Violation = snapshots.Violation


def judge(seen: snapshots.Snapshot) -> Iterator[Violation]:
    yield from _pods(seen)
    yield from _secrets(seen)
    yield from _reservations(seen)
    yield from _running_without_pods(seen)


def _pods(seen: snapshots.Snapshot) -> Iterator[Violation]:
    for pod in seen.ours:
        labels = pod.metadata.labels
        if not seen.holds(labels):
            yield Violation(
                invariant="I2",
                kind="orphan-pod",
                subject=snapshots.name_of(pod),
                evidence=(
                    snapshots.in_words(seen.job_of(labels)),
                    f"the pod is of restart {labels.get(wellknown.LABEL_RESTART)}, "
                    f"{pod.status.phase} on {pod.spec.node_name or 'no node'}",
                ),
            )


def _secrets(seen: snapshots.Snapshot) -> Iterator[Violation]:
    for secret in seen.secrets:
        meta = secret.metadata
        if meta.labels.get(wellknown.LABEL_APP) == wellknown.APP_VALUE and not seen.holds(meta.labels):
            yield Violation(
                invariant="I2",
                kind="orphan-secret",
                subject=f"secret {meta.namespace}/{meta.name} ({meta.uid})",
                evidence=(
                    snapshots.in_words(seen.job_of(meta.labels)),
                    f"the Secret is of restart {meta.labels.get(wellknown.LABEL_RESTART)}",
                ),
            )


def _reservations(seen: snapshots.Snapshot) -> Iterator[Violation]:
    for held in seen.daemon.held if seen.daemon else ():
        job = seen.jobs.get(held.job_id)
        if job is None or not job.holds_resources or held.node not in {s.node for s in job.shares}:
            yield Violation(
                invariant="I2",
                kind="held-for-nobody",
                subject=f"room of job {held.job_id} on {held.node}",
                evidence=(snapshots.in_words(job), f"penstockd holds it for restart {held.restart}"),
            )


def _running_without_pods(seen: snapshots.Snapshot) -> Iterator[Violation]:
    for job in seen.jobs.values():
        if job.state != states.JobState.RUNNING or not seen.is_bridged(job):
            continue
        missing = _missing_ranks(seen, job)
        if missing:
            pods = seen.pods_by_job.get(job.job_id, [])
            yield Violation(
                invariant="I2",
                kind="runs-without-running",
                subject=f"job {job.job_id} restart {job.identity.restart}",
                evidence=(
                    snapshots.in_words(job),
                    f"no living pod of rank {', '.join(map(str, missing))}",
                    *(f"{snapshots.name_of(pod)} is {pod.status.phase}" for pod in pods),
                ),
            )


def _missing_ranks(seen: snapshots.Snapshot, job: jobs.Job) -> list[int]:
    alive = {
        pod.metadata.labels.get(wellknown.LABEL_RANK)
        for pod in seen.pods_by_job.get(job.job_id, [])
        if podview.belongs_to(pod, job.identity) and not podview.is_over(pod)
    }
    return [rank for rank in range(len(job.shares)) if str(rank) not in alive]
