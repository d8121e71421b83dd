"""Random snapshots: a sound one has no violation, and a planted violation is always found."""

from __future__ import annotations

import dataclasses

import msgspec
from hypothesis import given
from hypothesis import strategies as some

from penstock.audit import invariants, snapshots
from penstock.kube import types
from penstock.model import audits, jobs, resources
from penstock.render import pods as rendering
from tests.unit import fakes
from tests.unit import test_audit as planting

NODES = ("n1", "n2", "n3")


@some.composite
def sound_worlds(draw: some.DrawFn) -> snapshots.Snapshot:
    """Jobs that fit their nodes, with pods, Secrets and reservations, and foreign pods in the free room."""
    found: dict[int, jobs.Job] = {}
    pods: list[types.Pod] = []
    held: list[audits.Held] = []
    left = dict.fromkeys(NODES, 8)
    for job_id in range(1, draw(some.integers(1, 6)) + 1):
        on = tuple(node for node in draw(some.sets(some.sampled_from(NODES), min_size=1)) if left[node] >= 1)
        if not on:
            continue
        cpus = draw(some.integers(1, min(left[node] for node in on)))
        restart = draw(some.integers(0, 2))
        found[job_id] = _running(job_id, on=on, cpus=cpus, restart=restart)
        for rank, node in enumerate(on):
            left[node] -= cpus
            pods.append(planting.pod(job_id, rank=rank, on=node, restart=restart, cpus=str(cpus)))
            held.append(audits.Held(job_id=job_id, restart=restart, node=node, millicpus=cpus * 1000))
    for node in NODES:
        pods.append(fakes.pod(f"foreign-{node}", on=node, cpus=str(draw(some.integers(0, left[node])))))
    return snapshots.Snapshot(
        pods=tuple(pods),
        nodes=tuple(fakes.node(name) for name in NODES),
        secrets=tuple(planting.secret(one, restart=job.identity.restart) for one, job in found.items()),
        jobs=found,
        daemon=planting.daemon(*held),
    )


def _running(job_id: int, *, on: tuple[str, ...], cpus: int, restart: int) -> jobs.Job:
    shares = tuple(jobs.NodeShare(node=node, amount=resources.Amount(millicpus=cpus * 1000)) for node in on)
    return fakes.job(job_id, state="RUNNING", restart=restart, shares=shares)


@given(sound_worlds())
def test_a_sound_snapshot_has_no_violation(seen: snapshots.Snapshot) -> None:
    assert invariants.judge(seen) == ()


@given(sound_worlds(), some.data())
def test_a_job_that_ended_before_its_pods_is_found(seen: snapshots.Snapshot, data: some.DataObject) -> None:
    """Each pod is freed too early and an orphan; the Secret and the reservation are orphans."""
    job_id = data.draw(some.sampled_from(sorted(seen.jobs)))
    job = seen.jobs[job_id]
    ended = dataclasses.replace(job, state="COMPLETED", shares=())
    after = dataclasses.replace(seen, jobs={**seen.jobs, job_id: ended})
    found = invariants.judge(after)
    names = {rendering.pod_name(job.identity, rank) for rank in range(len(job.shares))}
    for kind in ("freed-too-early", "orphan-pod"):
        assert {one.subject.split()[1].split("/")[1] for one in found if one.kind == kind} == names
    assert sum(one.kind == "held-for-nobody" for one in found) == len(names)
    assert sum(one.kind == "orphan-secret" for one in found) == 1
    assert len(found) == 3 * len(names) + 1


@given(sound_worlds(), some.data())
def test_an_extra_pod_is_found(seen: snapshots.Snapshot, data: some.DataObject) -> None:
    pod = data.draw(some.sampled_from(seen.ours))
    meta = msgspec.structs.replace(pod.metadata, name="second", uid="second")
    twin = msgspec.structs.replace(pod, metadata=meta)
    found = invariants.judge(dataclasses.replace(seen, pods=(*seen.pods, twin)))
    assert [one.kind for one in found] == ["more-than-its-share"]


@given(sound_worlds(), some.data())
def test_a_missing_pod_is_found(seen: snapshots.Snapshot, data: some.DataObject) -> None:
    gone = data.draw(some.sampled_from(seen.ours))
    found = invariants.judge(dataclasses.replace(seen, pods=tuple(pod for pod in seen.pods if pod != gone)))
    assert [one.kind for one in found] == ["runs-without-running"]


@given(sound_worlds(), some.data())
def test_a_node_whose_allocatable_shrinks_is_found(seen: snapshots.Snapshot, data: some.DataObject) -> None:
    job = seen.jobs[data.draw(some.sampled_from(sorted(seen.jobs)))]
    name = job.shares[0].node
    nodes = tuple(fakes.node(one, cpus=0 if one == name else 8) for one in NODES)
    found = invariants.judge(dataclasses.replace(seen, nodes=nodes))
    assert [(one.kind, one.subject) for one in found] == [("crowded", f"node {name}")]
