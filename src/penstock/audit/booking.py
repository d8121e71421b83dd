"""I1, no double booking: on every node, requests of our pods ≤ Slurm's allocation ≤ allocatable − other pods.

Three violations: a job's pods request more than its share of a node, Slurm freed a node that still has one of
our pods, or a node's jobs and other pods exceed its allocatable resources. Partitions in mode `trust` reserve
nothing: the first and the last do not apply to them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from penstock.audit import snapshots
from penstock.judge import rights
from penstock.kube import podview, types
from penstock.model import jobs, resources, states

Violation = snapshots.Violation


def judge(seen: snapshots.Snapshot) -> Iterator[Violation]:
    yield from _more_than_its_share(seen)
    yield from _freed_too_early(seen)
    yield from _crowded(seen)


def words(amount: resources.Amount) -> str:
    others = "".join(f", {count} {name}" for name, count in amount.devices)
    return f"{amount.millicpus / 1000:g} cpu, {amount.memory // 2**20}Mi, {amount.gpus} gpu{others}"


def _more_than_its_share(seen: snapshots.Snapshot) -> Iterator[Violation]:
    for job_id, pods in seen.pods_by_job.items():
        job = seen.jobs.get(job_id)
        if job is None or not job.holds_resources or seen.is_trusted(job):
            continue
        counted = [pod for pod in pods if rights.takes_room(pod)]
        if job.state == states.JobState.COMPLETING:  # the share of a requeued job is its next attempt's
            counted = [pod for pod in counted if podview.belongs_to(pod, job.identity)]
        for node in sorted({pod.spec.node_name for pod in counted}):
            there = [pod for pod in counted if pod.spec.node_name == node]
            asked = requests_of(there).only(seen.gpu_resources)
            if asked.shortages(_share(job, node, asked)):
                yield Violation(
                    invariant="I1",
                    kind="more-than-its-share",
                    subject=f"job {job_id} on {node}",
                    evidence=(
                        snapshots.in_words(job),
                        f"Slurm's share on {node}: {words(job.share_of(node))}",
                        *_each(there),
                    ),
                )


def _share(job: jobs.Job, node: str, asked: resources.Amount) -> resources.Amount:
    """The job's share of the node. scontrol omits the GPUs of a COMPLETING job, though Slurm keeps them."""
    share = job.share_of(node)
    if job.state == states.JobState.COMPLETING:
        kept = share.largest(asked)
        return dataclasses.replace(share, gpus=kept.gpus, devices=kept.devices)
    return share


def _freed_too_early(seen: snapshots.Snapshot) -> Iterator[Violation]:
    for pod in seen.ours:
        node = pod.spec.node_name
        if rights.takes_room(pod) and node not in seen.closed and not seen.holds(pod.metadata.labels):
            yield Violation(
                invariant="I1",
                kind="freed-too-early",
                subject=snapshots.name_of(pod),
                evidence=(
                    snapshots.in_words(seen.job_of(pod.metadata.labels)),
                    f"Slurm gives {node} to others while the pod is there: {words(podview.requested(pod))}",
                    f"deletionTimestamp: {pod.metadata.deletion_timestamp or 'none'}",
                ),
            )


def _crowded(seen: snapshots.Snapshot) -> Iterator[Violation]:
    if seen.daemon is None:
        return
    for node in seen.nodes:
        name = node.metadata.name
        takers = list(_takers(seen, name))
        taken = sum((amount for _, amount in takers), start=resources.Amount())
        evidence = (f"{what}: {words(amount)}" for what, amount in takers)
        allocatable = podview.amount(node.status.allocatable)
        if taken.only(seen.gpu_resources).shortages(allocatable):
            yield Violation(
                invariant="I1",
                kind="crowded",
                subject=f"node {name}",
                evidence=(f"allocatable: {words(allocatable)}", *evidence),
            )


def _takers(seen: snapshots.Snapshot, node: str) -> Iterator[tuple[str, resources.Amount]]:
    """What takes room on the node: jobs by their allocation or reservation, other pods by their requests."""
    booked = {
        job.job_id: amount
        for job in seen.jobs.values()
        if seen.is_bridged(job) and not seen.is_trusted(job)
        if (amount := _booked(seen, job, node)) != resources.Amount()
    }
    for job_id, amount in booked.items():
        yield f"job {job_id} ({seen.jobs[job_id].state})", amount
    for pod in seen.pods:
        if pod.spec.node_name == node and not podview.is_over(pod) and podview.job_id(pod) not in booked:
            yield snapshots.name_of(pod), podview.requested(pod)


def _booked(seen: snapshots.Snapshot, job: jobs.Job, node: str) -> resources.Amount:
    if not job.holds_resources:
        return resources.Amount()
    if job.state not in states.PERHAPS_NOT_ADMITTED:
        return job.share_of(node)
    held = seen.daemon.held if seen.daemon else ()
    amounts = (one.amount for one in held if one.job_id == job.job_id and one.node == node)
    return sum(amounts, start=resources.Amount())


def requests_of(pods: list[types.Pod]) -> resources.Amount:
    return sum(map(podview.requested, pods), start=resources.Amount())


def _each(pods: list[types.Pod]) -> Iterator[str]:
    return (f"{snapshots.name_of(pod)} requests {words(podview.requested(pod))}" for pod in pods)
