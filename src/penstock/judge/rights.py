"""Which of our objects belong to an attempt that holds nodes in Slurm; the others are orphans.

Slurm and Kubernetes cannot be read in one instant, so callers act only on what they find twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock import wellknown
from penstock.kube import podview, types
from penstock.model import jobs, states


def has_right(labels: Mapping[str, str], job: jobs.LiveJob | None) -> bool:
    """Whether objects with these labels belong to an attempt that holds nodes; `job` is None if unknown to
    Slurm.
    """
    if job is None or not job.holds_resources:
        return False
    restart, attempt = job.identity.restart, labels.get(wellknown.LABEL_RESTART)
    # Slurm raises the restart count of a requeued job while its nodes are still COMPLETING with old pods.
    is_going = job.state == states.JobState.COMPLETING and attempt == str(restart - 1)
    return attempt == str(restart) or is_going


def orphans(pods: Iterable[types.Pod], live: Mapping[int, jobs.LiveJob]) -> Iterator[types.Pod]:
    """Our pods without a live attempt; `live` are Slurm's live jobs by job id."""
    for pod in pods:
        job_id = podview.job_id(pod)
        if job_id is not None and not has_right(pod.metadata.labels, live.get(job_id)):
            yield pod


def takes_room(pod: types.Pod) -> bool:
    """Whether the pod is on a node and has not ended; a terminating pod still takes room."""
    return bool(pod.spec.node_name) and not podview.is_over(pod)
