"""Pure checks whether a job was lost, run twice, or recorded wrongly.

A job writes a line at the beginning and one at the end of every attempt. If it ends otherwise than by its
script, there must be a reason: cancelled, or the cluster's reason in its comment.
"""

from __future__ import annotations

import collections
import dataclasses

from penstock.audit import booking, snapshots
from penstock.kube import podview


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """A job's accounting record and its own lines."""

    job_id: str
    state: str
    code: str
    comment: str
    wanted: int
    """Its script's exit code."""
    trace: tuple[str, ...]
    cancelled: bool = False
    """Whether it was cancelled."""


def faults_of(job: Ended) -> list[str]:
    """The problems of a job, as messages."""
    begun = collections.Counter(line for line in job.trace if line.startswith("begin"))
    ends = collections.Counter(line for line in job.trace if line.startswith("end"))
    found = [f"doubled: {line!r} {count} times" for line, count in (begun + ends).items() if count > 1]
    true_end = ("COMPLETED" if job.wanted == 0 else "FAILED", f"{job.wanted}:0")
    if not job.state:
        found.append("lost: the accounting has no end of it")
    elif (job.state, job.code) == true_end:
        if not ends:
            found.append("ended well without having run")
    elif job.state == "COMPLETED":
        found.append(f"completed, though its script ends with {job.wanted}")
    elif job.state != "CANCELLED" and not job.comment:
        found.append(f"{job.state} {job.code} without a reason")
    return found


def faults_of_one_run(job: Ended) -> list[str]:
    """The same for a job with --no-requeue, in a run without faults that end started jobs: unless cancelled,
    it has run once and ended as its script does.
    """
    found = faults_of(job)
    ran = tuple(line.partition(" ")[0] for line in job.trace)
    true_end = ("COMPLETED" if job.wanted == 0 else "FAILED", f"{job.wanted}:0")
    if not job.cancelled and ((job.state, job.code) != true_end or ran != ("begin", "end")):
        found.append(f"did not run once: {job.state} {job.code}, {ran}, {job.comment}")
    return found


def is_room_for_all(seen: snapshots.Snapshot, subject: str) -> bool:
    """Whether all running pods of the node fit there.

    kube-scheduler does not know reservations: it may place a pod into the room of a job whose own pod has
    ended or is not created yet. That is no double booking: the kubelet refuses what does not fit, and the job
    is requeued.
    """
    name = subject.removeprefix("node ")
    living = [pod for pod in seen.pods if pod.spec.node_name == name and not podview.is_over(pod)]
    nodes = [node for node in seen.nodes if node.metadata.name == name]
    return all(
        not booking.requests_of(living).shortages(podview.amount(node.status.allocatable)) for node in nodes
    )
