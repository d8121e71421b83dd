"""Which objects of ours have a right to be there: those of an attempt for which Slurm keeps nodes.

What has none is an orphan. One look proves nothing: two systems are never seen in one instant, so everybody
who asks here looks twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock import wellknown
from penstock.kube import podview, types
from penstock.model import jobs, states


def has_right(labels: Mapping[str, str], job: jobs.LiveJob | None) -> bool:
    """Whether objects with these labels belong to an attempt that Slurm keeps nodes for; `job` is what Slurm
    says of the job that they name, None when it does not know it.
    """
    if job is None or not job.holds_resources:
        return False
    restart, attempt = job.identity.restart, labels.get(wellknown.LABEL_RESTART)
    # Slurm counts a requeued job's next attempt while the nodes are still kept for the pods of this one.
    is_going = job.state == states.JobState.COMPLETING and attempt == str(restart - 1)
    return attempt == str(restart) or is_going


def orphans(pods: Iterable[types.Pod], live: Mapping[int, jobs.LiveJob]) -> Iterator[types.Pod]:
    """Pods of ours that have no right; `live` are the jobs that Slurm keeps nodes for, by number."""
    for pod in pods:
        job_id = podview.job_id(pod)
        if job_id is not None and not has_right(pod.metadata.labels, live.get(job_id)):
            yield pod


def takes_room(pod: types.Pod) -> bool:
    """Whether the pod is on a node and has not ended: a pod that is being deleted still does."""
    return bool(pod.spec.node_name) and not podview.is_over(pod)
