"""Release, recovery and sweeps, with fakes of Slurm and Kubernetes."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from penstock import errors
from penstock.bridge import podremoval
from penstock.judge import rights
from penstock.kube import kinds, podview
from penstock.model import jobs
from penstock.render import pods as rendering
from tests.unit import fakes
from tests.unit.test_bridge import World, world

__all__ = ["world"]  # pytest finds the fixture by its name


async def test_release_deletes_only_the_jobs_pods_on_the_node(world: World) -> None:
    job = fakes.identity(1)
    world.bridge.context.store.reserve(fakes.allocation(1, on=("n1", "n2")))
    world.add_pod(fakes.pod("here", on="n1", job=job))
    world.add_pod(fakes.pod("there", on="n2", job=job))
    pods = world.bridge.context.pods
    pods.gone(pods.objects["default/here"])
    await world.bridge.releasing.release(1, "n1")
    assert world.kube.names("pods") == ["there"]
    held = world.bridge.context.store.reservation(1)
    assert held is not None
    assert [share.node for share in held.shares] == ["n2"]


@pytest.mark.parametrize("held", [("n1", "n2"), ("n2",)])
async def test_a_late_epilog_keeps_pods_that_wait_for_other_nodes(
    world: World, monkeypatch: pytest.MonkeyPatch, held: tuple[str, ...]
) -> None:
    """The job was requeued when the node was lost; its new rank 0 waits for the other ranks."""
    monkeypatch.setattr(podremoval, "LOOK_AGAIN", 0.01)
    world.bridge.context.store.reserve(fakes.allocation(1, on=held, restart=1))
    world.add_pod(fakes.pod("old", on="n1", job=fakes.identity(1)))
    world.add_pod(fakes.pod("waiting", on="", job=fakes.identity(1, restart=1)))
    await world.bridge.releasing.release(1, "n1")
    assert world.kube.names("pods") == ([] if "n1" in held else ["waiting"])


@pytest.mark.parametrize(
    ("state", "nodes", "left"),
    [
        ("RUNNING", ("n1",), ["new"]),
        ("CONFIGURING", ("n1",), ["new"]),
        ("COMPLETING", ("n1",), []),
        ("RUNNING", ("n2",), []),
    ],
)
async def test_a_late_epilog_keeps_the_attempt_that_runs_on_its_node(
    world: World, monkeypatch: pytest.MonkeyPatch, state: str, nodes: tuple[str, ...], left: list[str]
) -> None:
    """The lost node came back and got the job again: only the earlier attempt's pods are deleted. A job that
    is COMPLETING there is released as usual.
    """
    monkeypatch.setattr(podremoval, "LOOK_AGAIN", 0.01)
    world.bridge.context.store.reserve(fakes.allocation(1, restart=1))
    world.slurm.add(fakes.allocation(1, restart=1, on=nodes))
    world.slurm.allocations[1] = dataclasses.replace(world.slurm.allocations[1], state=state)
    world.add_pod(fakes.pod("old", job=fakes.identity(1)))
    world.add_pod(fakes.pod("new", job=fakes.identity(1, restart=1)))
    await world.bridge.releasing.release(1, "n1")
    assert world.kube.names("pods") == left
    assert (world.bridge.context.store.reservation(1) is not None) is bool(left)
    assert not world.bridge.context.store.is_leaving(1)


async def test_an_epilog_of_a_requeued_job_needs_slurms_answer(world: World) -> None:
    """Nothing is deleted while it is unknown which attempt it is about."""
    world.bridge.context.store.reserve(fakes.allocation(1, restart=1))
    world.add_pod(fakes.pod("new", job=fakes.identity(1, restart=1)))
    world.slurm.away = True
    with pytest.raises(errors.SlurmUnavailable):
        await world.bridge.releasing.release(1, "n1")
    assert world.kube.names("pods") == ["new"]


@pytest.mark.parametrize("deleted_before", [False, True])
async def test_released_pods_are_removed_from_the_cache(
    world: World, monkeypatch: pytest.MonkeyPatch, deleted_before: bool
) -> None:
    """The watch may be late; views and the next attempt must not see them."""
    monkeypatch.setattr(podremoval, "LOOK_AGAIN", 0.01)
    world.bridge.context.store.reserve(fakes.allocation(1))
    world.add_pod(fakes.pod("slow", job=fakes.identity(1)))
    if deleted_before:
        del world.kube.objects["pods", "default", "slow"]
    await world.bridge.releasing.release(1, "n1")
    assert world.bridge.context.pods.objects == {}
    world.slurm.add(fakes.allocation(1, restart=1))
    assert await fakes.admit(world.bridge, fakes.identity(1, restart=1)) == ()


async def test_a_conflict_on_deletion_does_not_mean_gone(world: World) -> None:
    """The pod exists and must stay in the cache."""
    world.bridge.context.store.reserve(fakes.allocation(1))
    world.add_pod(fakes.pod("here", job=fakes.identity(1)))
    world.kube.refuse["delete", "pods"] = errors.KubeConflict("not now", status=409)
    with pytest.raises(errors.KubeUnavailable, match="not now"):
        await world.bridge.releasing.release(1, "n1")
    with pytest.raises(errors.KubeUnavailable, match="not now"):
        await podremoval.delete(world.bridge.context, world.bridge.context.pods.objects["default/here"])
    assert set(world.bridge.context.pods.objects) == {"default/here"}
    assert world.bridge.context.store.reservation(1) is not None


async def test_release_needs_the_api(world: World) -> None:
    """A node that is freed too early is double-booked."""
    world.bridge.context.store.reserve(fakes.allocation(1))
    world.kube.refuse["get", "pods"] = errors.KubeUnavailable("down")
    with pytest.raises(errors.KubeUnavailable):
        await world.bridge.releasing.release(1, "n1")
    assert world.bridge.context.store.reservation(1) is not None


async def test_recovery_reserves_for_running_jobs(world: World) -> None:
    """From Slurm alone, for bridged and running jobs only."""
    world.slurm.add(fakes.allocation(1, gpus=2))
    world.slurm.add(fakes.allocation(2), state="PENDING")
    world.slurm.add(fakes.allocation(3), partition="host")
    await world.sweeper.recover()
    assert fakes.reserved(world.bridge) == (1,)


async def test_an_orphan_is_deleted_at_the_second_sweep(world: World) -> None:
    world.add_pod(fakes.pod("orphan", job=fakes.identity(5)))
    await world.sweeper.sweep()
    assert world.kube.names("pods")
    await world.sweeper.sweep()
    assert not world.kube.names("pods")


@pytest.mark.parametrize("trouble", ["slurm", "kube"])
async def test_no_sweep_without_slurm_or_kubernetes(world: World, trouble: str) -> None:
    """I4."""
    world.add_pod(fakes.pod("p", job=fakes.identity(5)))
    await world.sweeper.sweep()
    if trouble == "slurm":
        world.slurm.away = True
        with pytest.raises(errors.SlurmUnavailable):
            await world.sweeper.sweep()
    else:
        world.bridge.context.pods.listed.clear()
        await world.sweeper.sweep()
    assert world.kube.names("pods")


async def test_a_pod_kept_by_a_webhook_does_not_stop_the_sweep(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API answers 500 for this pod alone."""
    delete = world.kube.delete

    async def kept(kind: kinds.Kind, *, name: str, **how: Any) -> None:
        if name == "kept":
            raise errors.KubeUnavailable("failed calling webhook", status=500)
        await delete(kind, name=name, **how)

    monkeypatch.setattr(world.kube, "delete", kept)
    for number, name in enumerate(("kept", "orphan"), 1):
        world.add_pod(fakes.pod(name, job=fakes.identity(number)))
    world.bridge.context.store.reserve(fakes.allocation(3))
    world.slurm.add(fakes.allocation(3))
    for _ in range(3):
        await world.sweeper.sweep()
    assert world.kube.names("pods") == ["kept"]
    assert world.sweeper.unattended.rounds[3] == 3


async def test_sweep_keeps_live_and_foreign_pods(world: World) -> None:
    world.slurm.add(fakes.allocation(1))
    world.add_pod(fakes.pod("live", job=fakes.identity(1)))
    world.add_pod(fakes.pod("foreign"))
    for _ in range(3):
        await world.sweeper.sweep()
    assert len(world.kube.names("pods")) == 2


async def test_pods_of_another_slurm_cluster_are_foreign(world: World) -> None:
    """For admission, sweep and release: same job id and labels, but another cluster's name."""
    world.bridge.context.settings = msgspec.structs.replace(fakes.SETTINGS, cluster="ours")
    theirs = fakes.pod("theirs", cpus="7", job=fakes.identity(17))
    theirs.metadata.labels["penstock.dev/cluster"] = "theirs"
    world.add_pod(podview.as_seen_by("ours", theirs))
    world.slurm.add(fakes.allocation(17))
    assert "held by default/theirs" in (await fakes.admit(world.bridge, fakes.identity(17)))[0]
    del world.slurm.live[17]
    await world.sweeper.sweep()
    await world.sweeper.sweep()
    assert not [call for call in world.kube.calls if call[0] == "delete"]


def test_labels_name_the_slurm_cluster() -> None:
    """Shortened to a label value; none for a site without a name."""
    labels = rendering.labels_of(fakes.identity(), "my cluster_")
    assert labels["penstock.dev/cluster"] == "my-cluster"
    assert "penstock.dev/cluster" not in rendering.labels_of(fakes.identity())


def test_an_earlier_attempts_pod_is_an_orphan() -> None:
    live = {1: jobs.LiveJob(identity=fakes.identity(1, restart=1), state="RUNNING", partition="gpu")}
    old, new = fakes.pod("old", job=fakes.identity(1)), fakes.pod("new", job=fakes.identity(1, restart=1))
    assert {pod.metadata.uid for pod in rights.orphans([old, new], live)} == {"uid-old"}


async def test_reservations_of_ended_jobs_are_released(world: World) -> None:
    """For example of a job cancelled between admission and launch."""
    world.bridge.context.store.reserve(fakes.allocation(1))
    world.slurm.add(fakes.allocation(2), state="COMPLETED")
    world.bridge.context.store.reserve(fakes.allocation(2))
    await world.sweeper.sweep()
    assert fakes.reserved(world.bridge) == ()
