"""The invariants: each kind of planted violation is found, and a sound snapshot has none."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from penstock import wellknown
from penstock.audit import confirmed, invariants, snapshots
from penstock.kube import types
from penstock.model import audits, jobs
from penstock.render import pods as rendering
from tests.unit import fakes

Snapshot = snapshots.Snapshot


def job(
    job_id: int = 17,
    *,
    state: str = "RUNNING",
    on: tuple[str, ...] = ("n1",),
    restart: int = 0,
    partition: str = "gpu",
    **record: str | int,
) -> jobs.Job:
    allocation = fakes.allocation(job_id, on=on, restart=restart)
    found = fakes.job(job_id, state=state, restart=restart, partition=partition, **record)
    return dataclasses.replace(found, shares=allocation.shares if found.holds_resources else ())


def pod(
    job_id: int = 17,
    *,
    rank: int = 0,
    on: str = "n1",
    restart: int = 0,
    cpus: str = "2",
    status: types.PodStatus | None = None,
    deleting: bool = False,
) -> types.Pod:
    identity = fakes.identity(job_id, restart=restart)
    name = rendering.pod_name(identity, rank)
    made = fakes.pod(name, on=on, cpus=cpus, job=identity, status=status, deleting=deleting)
    labels = {**made.metadata.labels, wellknown.LABEL_RANK: str(rank)}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


def secret(job_id: int = 17, *, restart: int = 0) -> types.Secret:
    identity = fakes.identity(job_id, restart=restart)
    meta = types.Meta(name=rendering.secret_name(identity), labels=rendering.labels_of(identity))
    return types.Secret(metadata=meta)


def held(job_id: int = 17, *, on: str = "n1", cpus: int = 2) -> audits.Held:
    return audits.Held(job_id=job_id, restart=0, node=on, millicpus=cpus * 1000)


def daemon(*of: audits.Held, ends: tuple[audits.End, ...] = (), trusted: bool = False) -> audits.DaemonView:
    partitions = ("gpu",)
    return audits.DaemonView(
        bridged_partitions=partitions,
        trusted_partitions=partitions if trusted else (),
        held=of,
        ends=ends,
    )


QUIET = daemon()


def world(
    *of: jobs.Job,
    pods: tuple[types.Pod, ...] = (),
    secrets: tuple[types.Secret, ...] = (),
    told: audits.DaemonView | None = QUIET,
    closed: dict[str, str] | None = None,
) -> Snapshot:
    return Snapshot(
        pods=pods,
        nodes=(fakes.node("n1"), fakes.node("n2")),
        secrets=secrets,
        jobs={one.job_id: one for one in of},
        closed=closed or {},
        daemon=told,
    )


def kinds(seen: Snapshot) -> list[str]:
    return sorted(one.kind for one in invariants.judge(seen))


SOUND = {
    "a job that runs": world(job(), pods=(pod(),), secrets=(secret(),), told=daemon(held())),
    "a gang": world(job(on=("n1", "n2")), pods=(pod(), pod(rank=1, on="n2")), secrets=(secret(),)),
    "a job that waits": world(job(state="PENDING")),
    "a job that is being let in": world(job(state="CONFIGURING"), told=daemon(held())),
    "a job whose pods are going": world(
        job(state="COMPLETING"), pods=(pod(deleting=True),), secrets=(secret(),), told=daemon(held())
    ),
    "a requeued job whose pods are going": world(
        job(state="COMPLETING", restart=1), pods=(pod(deleting=True),), secrets=(secret(),)
    ),
    "a job that has ended": world(job(state="FAILED", exit_code=7), told=daemon(ends=(
        audits.End(job_id=17, restart=0, exit_code=7),
    ))),
    "a job that died of a signal": world(job(state="FAILED", signal=15), told=daemon(ends=(
        audits.End(job_id=17, restart=0, exit_code=143, signal=15),
    ))),
    "a cancelled job says what Slurm says": world(job(state="CANCELLED", signal=15), told=daemon(ends=(
        audits.End(job_id=17, restart=0, exit_code=1),
    ))),
    "an end of an earlier attempt": world(job(state="COMPLETED", restart=1), told=daemon(ends=(
        audits.End(job_id=17, restart=0, exit_code=1),
    ))),
    "a plain Slurm job needs no pods": world(job(partition="host")),
    "somebody else's pods": world(pods=(fakes.pod(cpus="8"),)),
    "a full node": world(job(), pods=(pod(), fakes.pod(cpus="6"))),
    "pods where kube-scheduler placed them": world(
        job(), pods=(pod(on="n2"), fakes.pod(cpus="8")), told=daemon(trusted=True)
    ),
    "a refused job that Slurm takes back": world(job(state="COMPLETING"), pods=(fakes.pod(cpus="8"),)),
    "penstockd is away": world(job(), pods=(pod(),), told=None),
}  # fmt: skip


@pytest.mark.parametrize("seen", SOUND.values(), ids=SOUND)
def test_a_sound_snapshot_is_accepted(seen: Snapshot) -> None:
    assert invariants.judge(seen) == ()


def test_the_agents_message_tells_a_signal_from_an_exit_code() -> None:
    """They say more than the one word: the pod itself is too late, but its end is Slurm's."""
    gone = pod(status=fakes.ended(143, message="signal\n0m0.003s 0m0.001s\nmemory 1 2\n"))
    assert "another-end" not in kinds(world(job(state="FAILED", signal=15), pods=(gone,)))
    assert "another-end" in kinds(world(job(state="FAILED", exit_code=143), pods=(gone,)))


BROKEN = {
    "a pod asks for more than the share": (world(job(), pods=(pod(cpus="3"),)), ["more-than-its-share"]),
    "two attempts at once": (
        world(job(restart=1), pods=(pod(restart=1), pod(restart=0))),
        ["freed-too-early", "more-than-its-share", "orphan-pod"],
    ),
    "a pod on a node that is not the job's": (
        world(job(), pods=(pod(), pod(rank=1, on="n2"))),
        ["more-than-its-share"],
    ),
    "Slurm freed the node under a pod": (
        world(job(state="COMPLETED"), pods=(pod(deleting=True),)),
        ["freed-too-early", "orphan-pod"],
    ),
    "nobody gets a drained node": (
        world(job(state="COMPLETED"), pods=(pod(deleting=True),), closed={"n1": "penstock: …"}),
        ["orphan-pod"],
    ),
    "a job that was sent back has a pod": (
        world(job(state="PENDING", restart=1), pods=(pod(),)),
        ["freed-too-early", "orphan-pod"],
    ),
    "more than there is": (world(job(), pods=(pod(), fakes.pod(cpus="7"))), ["crowded"]),
    "more promised than there is": (
        world(job(state="CONFIGURING"), pods=(fakes.pod(cpus="7"),), told=daemon(held())),
        ["crowded"],
    ),
    "a pod that never ran, of no job": (world(pods=(pod(on=""),)), ["orphan-pod"]),
    "a Secret of no job": (world(secrets=(secret(),)), ["orphan-secret"]),
    "a Secret of an earlier attempt": (
        world(job(restart=1), pods=(pod(restart=1),), secrets=(secret(restart=0),)),
        ["orphan-secret"],
    ),
    "room held for nobody": (world(told=daemon(held())), ["held-for-nobody"]),
    "room held where the job is not": (
        world(job(), pods=(pod(),), told=daemon(held(on="n2"))),
        ["held-for-nobody"],
    ),
    "a job without a pod": (world(job()), ["runs-without-running"]),
    "a job whose pod has ended": (
        world(job(), pods=(pod(status=fakes.ended(0, reason="Completed")),)),
        ["runs-without-running"],
    ),
    "half a gang": (world(job(on=("n1", "n2")), pods=(pod(),)), ["runs-without-running"]),
    "success instead of failure": (
        world(job(state="COMPLETED"), told=daemon(ends=(audits.End(job_id=17, restart=0, exit_code=3),))),
        ["another-end"],
    ),
    "another exit code": (
        world(
            job(state="FAILED", exit_code=1),
            told=daemon(ends=(audits.End(job_id=17, restart=0, exit_code=3),)),
        ),
        ["another-end"],
    ),
    "another end than the container's": (
        world(
            job(state="COMPLETED"),
            pods=(pod(on="", status=fakes.ended(9)),),
            told=daemon(),
        ),
        ["another-end", "orphan-pod"],
    ),
    "no word of the reason": (
        world(
            job(state="FAILED", exit_code=1, comment="user's own"),
            told=daemon(ends=(audits.End(job_id=17, restart=0, exit_code=1, reason="OOMKilled: …"),)),
        ),
        ["reason-missing"],
    ),
}


@pytest.mark.parametrize(("seen", "expected"), BROKEN.values(), ids=BROKEN)
def test_every_planted_violation_is_found(seen: Snapshot, expected: list[str]) -> None:
    """With invariant, subject and readable evidence."""
    found = invariants.judge(seen)
    assert sorted(one.kind for one in found) == expected
    for one in found:
        assert one.invariant in invariants.INVARIANTS
        assert one.subject
        assert one.evidence


def test_orphans_are_found_without_penstockd() -> None:
    assert kinds(world(pods=(pod(),), secrets=(secret(),), told=None)) == [
        "freed-too-early",
        "orphan-pod",
        "orphan-secret",
    ]


ONE = snapshots.Violation(invariant="I1", kind="crowded", subject="node n1")
LATE = snapshots.Violation(invariant="I2", kind="orphan-pod", subject="pod a")


def test_a_single_look_confirms_nothing() -> None:
    confirmer = confirmed.Confirmer()
    assert confirmer.look([ONE], at=0).violations == ()
    assert confirmer.look([], at=1) == confirmed.Verdict((), ())
    assert confirmer.look([ONE], at=2).violations == ()
    assert confirmer.look([ONE], at=3).violations == (ONE,)


def test_an_orphan_counts_only_if_it_persists() -> None:
    """penstockd needs time to remove it."""
    confirmer = confirmed.Confirmer({"I2": 30.0})
    verdicts = [confirmer.look([LATE], at=at) for at in (0, 29, 30)]
    assert [verdict.violations for verdict in verdicts] == [(), (), (LATE,)]
    assert verdicts[1].suspicions == (LATE,)
