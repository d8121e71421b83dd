"""The steps of the protocol, with Slurm and Kubernetes played by fakes."""

from __future__ import annotations

import dataclasses
import signal
from typing import Any

import msgspec
import pytest

from penstock import errors
from penstock.bridge import admission, container, gang, launch, podremoval, sweeps
from penstock.bridge import bridge as bridging
from penstock.judge import rights
from penstock.kube import kinds, podview, reflectors, types
from penstock.model import jobs
from penstock.model.reasons import RefusalKind
from penstock.render import pods as rendering
from tests.unit import fakes


@dataclasses.dataclass
class World:
    """A bridge and everything it stands on."""

    slurm: fakes.FakeSlurm
    kube: fakes.FakeKube
    bridge: bridging.Bridge
    sweeper: sweeps.Sweeper

    def add_pod(self, pod: types.Pod) -> None:
        """A pod that both the API and the picture have."""
        self.kube.add_pod(pod)
        self.bridge.context.pods.put(pod)


@pytest.fixture
def world() -> World:
    clock = fakes.ManualClock()
    slurm, kube = fakes.FakeSlurm(), fakes.FakeKube()
    pods = reflectors.Reflector(kube, kinds.PODS, types.Pod, indexes=podview.INDEXES, time=clock)
    nodes = reflectors.Reflector(kube, kinds.NODES, types.Node, time=clock)
    for name in ("n1", "n2"):
        nodes.objects[f"/{name}"] = fakes.node(name)
        kube.add_node(fakes.node(name))
    for picture in (pods, nodes):
        picture.listed.set()
    bridge = fakes.bridge(slurm=slurm, kube=kube, pods=pods, nodes=nodes, time=clock)
    return World(slurm, kube, bridge, bridge.sweeper)


async def test_admission_holds_the_room(world: World) -> None:
    """The second job sees what the first was promised."""
    for job_id in (1, 2):
        world.slurm.add(fakes.allocation(job_id, gpus=3))
    assert await fakes.admit(world.bridge, fakes.identity(1)) == ()
    assert await fakes.admit(world.bridge, fakes.identity(2)) == ("waits for gpu on n1: 1 free of 3 needed",)
    assert fakes.reserved(world.bridge) == (1,)


async def test_admission_promises_nothing_without_the_api(world: World) -> None:
    """I4: an old picture is no ground for a promise."""
    world.slurm.add(fakes.allocation(1))
    world.bridge.context.pods.listed.clear()
    assert await fakes.admit(world.bridge, fakes.identity(1)) == (
        "waits for Kubernetes: the API does not answer",
    )


@pytest.mark.parametrize("own", ["", "run 3"])
async def test_a_job_that_starts_has_its_owners_comment_again(world: World, own: str) -> None:
    """Not what it waited for; and a Slurm that does not take the comment keeps no job from starting."""
    world.slurm.add(fakes.allocation(1))
    world.slurm.comments[1] = own
    await world.slurm.say_why_it_waits(1, "waits for gpu on n1")
    assert world.slurm.comments[1].startswith("waits for gpu on n1")
    assert await fakes.admit(world.bridge, fakes.identity(1)) == ()
    assert world.slurm.comments[1] == own
    await world.slurm.say_why_it_waits(1, "waits for gpu on n1")
    world.slurm.set_comment = _refusing  # type: ignore[method-assign]  # one call that fails
    assert await fakes.admit(world.bridge, fakes.identity(1)) == ()


async def _refusing(job_id: int, text: str) -> None:
    raise errors.SlurmUnavailable("scontrol: Unable to contact slurm controller")


async def test_a_job_cancelled_during_its_admission_holds_nothing(world: World) -> None:
    """Its Epilog comes while Slurm is still being asked: the promise must not be made afterwards."""
    world.slurm.add(fakes.allocation(1))
    answer = world.slurm.details

    async def cancelled_meanwhile(job_id: int) -> jobs.Job:
        found = await answer(job_id)
        await world.bridge.releasing.release(job_id, "n1")
        return found

    world.slurm.details = cancelled_meanwhile  # type: ignore[method-assign]  # the race, made certain
    assert await fakes.admit(world.bridge, fakes.identity(1)) == fakes.said(RefusalKind.CANCELLED)
    assert fakes.reserved(world.bridge) == ()


async def test_only_the_owner_may_launch(world: World) -> None:
    """The uid at the other end of the socket must be the job's."""
    world.slurm.add(fakes.allocation(1))
    assert (await world.bridge.launching.allocation_for(1, 1001)).identity.job_id == 1
    with pytest.raises(launch.NotYours):
        await world.bridge.launching.allocation_for(1, 1002)


async def test_a_job_that_does_not_run_cannot_be_launched(world: World) -> None:
    """Pending, finished and unknown jobs have no pods."""
    world.slurm.add(fakes.allocation(1), state="PENDING")
    for job_id in (1, 99):
        with pytest.raises(launch.NotYours):
            await world.bridge.launching.allocation_for(job_id, 1001)


async def test_a_job_that_nobody_let_in_is_let_in_when_it_is_launched(world: World) -> None:
    """Its PrologSlurmctld was killed, which Slurm takes for a yes; no room means back to the queue."""
    world.slurm.add(fakes.allocation(1, gpus=3))
    allocation = await world.bridge.launching.allocation_for(1, 1001)
    world.add_pod(fakes.pod("notebook", gpus=2))
    with pytest.raises(gang.GangRefused, match="waits for gpu on n1") as refused:
        await world.bridge.launching.launch(allocation, fakes.REQUEST, fakes.nobody)
    assert refused.value.outcome.requeue
    assert ("create", "pods", "slurm-job-1") not in world.kube.calls
    assert world.bridge.context.store.reservation(1) is None
    pods = world.bridge.context.pods
    pods.gone(pods.objects["default/notebook"])
    del world.kube.objects["pods", "default", "notebook"]
    assert await world.bridge.launching.launch(allocation, fakes.REQUEST, fakes.nobody)
    assert world.bridge.context.store.reservation(1) == allocation


MADE = 1767225600
"""2026-01-01, 0:00, in seconds since 1970."""


@pytest.mark.parametrize(("submitted", "goes"), [(MADE + 10, True), (MADE - 60, False)])
async def test_a_number_that_is_given_anew_does_not_bring_the_former_jobs_pods(
    world: World, submitted: int, goes: bool
) -> None:
    """slurmctld lost its state: pods older than the job are not its own; younger ones are."""
    world.slurm.add(fakes.allocation(1))
    world.slurm.allocations[1] = dataclasses.replace(world.slurm.allocations[1], submitted=submitted)
    pod = fakes.pod("slurm-job-1", job=fakes.identity(1))
    made = msgspec.structs.replace(pod.metadata, creation_timestamp="2026-01-01T00:00:00Z")
    world.add_pod(msgspec.structs.replace(pod, metadata=made))
    found = await fakes.admit(world.bridge, fakes.identity(1))
    assert found == (("waits for pod slurm-job-1 of its earlier attempt to be gone",) if goes else ())
    assert world.kube.names("pods") == ([] if goes else ["slurm-job-1"])


async def test_attaching_never_makes_a_pod(world: World) -> None:
    """A pod that is gone stays gone."""
    assert await world.bridge.launching.attach(fakes.allocation(1), fakes.REQUEST) == ()
    assert [call[0] for call in world.kube.calls] == ["get"]


async def test_release_takes_only_this_jobs_pods_off_this_node(world: World) -> None:
    """Other jobs' and other nodes' pods stay; the promise goes with the node."""
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
async def test_a_late_epilog_leaves_pods_alone_that_wait_for_other_nodes(
    world: World, monkeypatch: pytest.MonkeyPatch, held: tuple[str, ...]
) -> None:
    """The job was sent elsewhere when that node was lost: there its first pod waits for the others to run."""
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
async def test_a_late_epilog_leaves_the_attempt_alone_that_runs_on_its_node(
    world: World, monkeypatch: pytest.MonkeyPatch, state: str, nodes: tuple[str, ...], left: list[str]
) -> None:
    """A node that was lost came back and has the job again: only what the earlier attempt left there goes.

    A job that gives a node back while it runs on others is off that node, as one that ends is.
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


async def test_an_epilog_of_a_later_attempt_waits_for_slurms_word(world: World) -> None:
    """Nothing is deleted while nobody knows which attempt it is about."""
    world.bridge.context.store.reserve(fakes.allocation(1, restart=1))
    world.add_pod(fakes.pod("new", job=fakes.identity(1, restart=1)))
    world.slurm.away = True
    with pytest.raises(errors.SlurmUnavailable):
        await world.bridge.releasing.release(1, "n1")
    assert world.kube.names("pods") == ["new"]


@pytest.mark.parametrize("deleted_before", [False, True])
async def test_what_was_released_is_gone_however_late_the_watch_is(
    world: World, monkeypatch: pytest.MonkeyPatch, deleted_before: bool
) -> None:
    """The API's own word counts: nobody is shown such a pod, and the next attempt does not wait for it."""
    monkeypatch.setattr(podremoval, "LOOK_AGAIN", 0.01)
    world.bridge.context.store.reserve(fakes.allocation(1))
    world.add_pod(fakes.pod("slow", job=fakes.identity(1)))
    if deleted_before:
        del world.kube.objects["pods", "default", "slow"]
    await world.bridge.releasing.release(1, "n1")
    assert world.bridge.context.pods.objects == {}
    world.slurm.add(fakes.allocation(1, restart=1))
    assert await fakes.admit(world.bridge, fakes.identity(1, restart=1)) == ()


async def test_a_conflict_about_the_very_pod_is_not_its_end(world: World) -> None:
    """Somebody in between has refused it: the pod is there, and must stay in the picture."""
    world.bridge.context.store.reserve(fakes.allocation(1))
    world.add_pod(fakes.pod("here", job=fakes.identity(1)))
    world.kube.refuse["delete", "pods"] = errors.KubeConflict("not now", status=409)
    with pytest.raises(errors.KubeUnavailable, match="not now"):
        await world.bridge.releasing.release(1, "n1")
    with pytest.raises(errors.KubeUnavailable, match="not now"):
        await podremoval.delete(world.bridge.context, world.bridge.context.pods.objects["default/here"])
    assert set(world.bridge.context.pods.objects) == {"default/here"}
    assert world.bridge.context.store.reservation(1) is not None


async def test_release_is_not_said_without_the_api(world: World) -> None:
    """Freed too early is the bug behind double bookings."""
    world.bridge.context.store.reserve(fakes.allocation(1))
    world.kube.refuse["get", "pods"] = errors.KubeUnavailable("down")
    with pytest.raises(errors.KubeUnavailable):
        await world.bridge.releasing.release(1, "n1")
    assert world.bridge.context.store.reservation(1) is not None


async def test_recovery_holds_what_runs(world: World) -> None:
    """After a restart the ledger is written from Slurm alone, bridged and running jobs only."""
    world.slurm.add(fakes.allocation(1, gpus=2))
    world.slurm.add(fakes.allocation(2), state="PENDING")
    world.slurm.add(fakes.allocation(3), partition="host")
    await world.sweeper.recover()
    assert fakes.reserved(world.bridge) == (1,)


async def test_an_orphan_goes_at_the_second_look(world: World) -> None:
    """Once could be a mistake."""
    world.add_pod(fakes.pod("orphan", job=fakes.identity(5)))
    await world.sweeper.sweep()
    assert world.kube.names("pods")
    await world.sweeper.sweep()
    assert not world.kube.names("pods")


@pytest.mark.parametrize("trouble", ["slurm", "kube"])
async def test_nothing_is_swept_while_one_side_is_away(world: World, trouble: str) -> None:
    """I4: no answer is not a reason to delete."""
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


async def test_a_pod_that_a_webhook_keeps_holds_up_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API answers 500 for it alone; the rest of the round is done."""
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


async def test_pods_of_live_jobs_and_of_others_are_left_alone(world: World) -> None:
    """The sweep knows whose a pod is."""
    world.slurm.add(fakes.allocation(1))
    world.add_pod(fakes.pod("live", job=fakes.identity(1)))
    world.add_pod(fakes.pod("foreign"))
    for _ in range(3):
        await world.sweeper.sweep()
    assert len(world.kube.names("pods")) == 2


async def test_pods_of_another_slurm_cluster_take_room_and_are_left_alone(world: World) -> None:
    """Same job id, same labels but for the cluster's name: foreign for admission, sweeping and release."""
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
    """As far as a label can; a site without a name has none."""
    labels = rendering.labels_of(fakes.identity(), "my cluster_")
    assert labels["penstock.dev/cluster"] == "my-cluster"
    assert "penstock.dev/cluster" not in rendering.labels_of(fakes.identity())


def test_an_older_attempts_pod_has_no_right() -> None:
    """A requeued job's earlier pod is an orphan."""
    live = {1: jobs.LiveJob(identity=fakes.identity(1, restart=1), state="RUNNING", partition="gpu")}
    old, new = fakes.pod("old", job=fakes.identity(1)), fakes.pod("new", job=fakes.identity(1, restart=1))
    assert {pod.metadata.uid for pod in rights.orphans([old, new], live)} == {"uid-old"}


async def test_promises_of_jobs_that_are_gone_are_forgotten(world: World) -> None:
    """A job cancelled between admission and launch holds nothing for ever."""
    world.bridge.context.store.reserve(fakes.allocation(1))
    world.slurm.add(fakes.allocation(2), state="COMPLETED")
    world.bridge.context.store.reserve(fakes.allocation(2))
    await world.sweeper.sweep()
    assert fakes.reserved(world.bridge) == ()


async def test_a_job_never_runs_beside_itself(world: World) -> None:
    """A pod of the earlier attempt is told to go, and the new one waits for that."""
    world.slurm.add(fakes.allocation(1, restart=1))
    world.add_pod(fakes.pod("old", job=fakes.identity(1)))
    found = await fakes.admit(world.bridge, fakes.identity(1, restart=1))
    assert found == ("waits for pod old of its earlier attempt to be gone",)
    assert ("delete", "pods", "old") in world.kube.calls


async def test_a_trusted_partition_is_not_checked(world: World) -> None:
    """Mode trust: kube-scheduler will see."""
    world.slurm.add(fakes.allocation(1, gpus=4), partition="trusting")
    world.add_pod(fakes.pod("notebook", gpus=4))
    assert await fakes.admit(world.bridge, fakes.identity(1)) != ()
    world.bridge.context.settings = fakes.policy("trusting", mode="trust")
    assert await fakes.admit(world.bridge, fakes.identity(1)) == ()


@pytest.mark.parametrize(
    ("number", "how", "command"),
    [
        (signal.SIGUSR1, {"everyone": False}, "kill -USR1 1"),
        (signal.SIGUSR1, {"everyone": True}, "kill -USR1 -1"),
        (signal.SIGTERM, {"everyone": True}, "kill -TERM -1"),
        (signal.SIGTERM, {"everyone": False}, "kill -TTIN 1"),
        (signal.SIGTERM, {"everyone": False, "agent": False}, "kill -TERM 1"),
    ],
)
async def test_signals_go_into_the_pod(
    world: World, number: signal.Signals, how: dict[str, bool], command: str
) -> None:
    """To the agent, which passes them to the script, or to all processes at once."""
    await container.Container(world.kube, fakes.pod("p")).signal(number, **how)
    assert world.kube.commands == [("/bin/sh", "-c", command)]


async def test_a_node_that_cannot_be_known_clean_is_drained_and_freed_later(world: World) -> None:
    """Our reason only; freed when the pod is gone."""
    drainer = fakes.drainer(world.bridge)
    await drainer.abandon(1, "n1")
    world.slurm.reasons["n2"] = "broken fan"
    world.add_pod(fakes.pod("stuck", job=fakes.identity(1), deleting=True))
    await drainer.lift()
    assert set(world.slurm.reasons) == {"n1", "n2"}
    del world.kube.objects["pods", "default", "stuck"]
    await drainer.lift()
    assert world.slurm.reasons == {"n2": "broken fan"}


async def test_a_node_that_left_kubernetes_is_clean(world: World) -> None:
    """Nothing can run where nothing is."""
    drainer = fakes.drainer(world.bridge)
    await drainer.abandon(1, "n9")
    world.add_pod(fakes.pod("stuck", on="n9", job=fakes.identity(1)))
    await drainer.lift()
    assert world.slurm.reasons == {}


def test_a_job_waits_a_little_longer_each_time() -> None:
    """And never longer than two minutes."""
    assert [admission.wait_after(count) for count in (1, 2, 3, 4, 5, 50)] == [12, 24, 48, 96, 120, 120]


async def test_a_job_that_skipped_job_submit_is_not_admitted(world: World) -> None:
    """Its script would run on the node itself: no launcher stands before it."""
    world.slurm.add(fakes.allocation(1))
    world.slurm.allocations[1] = dataclasses.replace(world.slurm.allocations[1], prepared=False)
    assert await fakes.admit(world.bridge, fakes.identity(1)) == fakes.said(RefusalKind.NOT_PREPARED)
    assert fakes.reserved(world.bridge) == ()


async def test_attaching_finishes_what_was_announced(world: World) -> None:
    """penstockd was killed between telling the launcher and binding rank 0: the very pod is bound, once."""
    world.slurm.add(fakes.allocation(1))
    allocation = await world.bridge.launching.allocation_for(1, 1001)
    world.bridge.context.store.reserve(allocation)

    async def dies() -> None:
        raise errors.KubeUnavailable("killed here")

    with pytest.raises(errors.KubeUnavailable):
        await world.bridge.launching.launch(allocation, fakes.REQUEST, dies)
    made = world.kube.calls.count(("create", "pods", "slurm-job-1"))
    (pod,) = await world.bridge.launching.attach(allocation, fakes.REQUEST)
    assert pod.spec.node_name == "n1"
    assert world.kube.calls.count(("create", "pods", "slurm-job-1")) == made
    assert ("bind", "pods", "slurm-job-1") in world.kube.calls


async def test_attaching_makes_up_for_a_secret_where_kube_scheduler_was_faster(world: World) -> None:
    """The pod is placed but cannot start: its maker was stopped before it had made the Secret."""
    allocation = dataclasses.replace(fakes.allocation(1), partition="open")
    world.bridge.context.settings = fakes.policy("open", mode="trust")
    namespace = await fakes.namespace(world.bridge, allocation)
    pod = fakes.pod("slurm-job-1", job=allocation.identity)
    world.kube.add_pod(
        msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace=namespace))
    )
    found = await world.bridge.launching.attach(allocation, fakes.REQUEST)
    assert [one.metadata.uid for one in found] == [pod.metadata.uid]
    assert len(world.kube.names("secrets")) == 1
