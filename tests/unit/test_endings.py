"""How a job ends: derived from its pod, waited for, and never guessed."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from penstock import errors
from penstock.bridge import follower
from penstock.judge import outcomes
from penstock.kube import kinds, podview, reflectors, types
from penstock.model import reasons, sentences
from penstock.model.reasons import Outcome, OutcomeKind
from tests.unit import fakes


def waiting(reason: str, message: str = "") -> types.PodStatus:
    state = types.ContainerState(waiting=types.Waiting(reason=reason, message=message))
    return types.PodStatus(container_statuses=[types.ContainerStatus(name="job", state=state)])


def looking(status: types.PodStatus) -> types.PodStatus:
    """What is true of the job's container there, of the one that looks for folders here."""
    (one,) = status.container_statuses
    looks = msgspec.structs.replace(one, name="look")
    job = waiting("PodInitializing").container_statuses
    return msgspec.structs.replace(status, init_container_statuses=[looks], container_statuses=job)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (types.PodStatus(), None),
        (types.PodStatus(phase="Running"), None),
        (waiting("ContainerCreating"), None),
        (waiting("ErrImagePull"), None),
        (
            waiting("ImagePullBackOff", "no such image"),
            Outcome(kind=OutcomeKind.CANNOT_START, exit_code=1, detail="ImagePullBackOff: no such image"),
        ),
        (fakes.ended(0, reason="Completed"), Outcome(exit_code=0)),
        (fakes.ended(7), Outcome(exit_code=7)),
        (
            fakes.ended(126, message="penstock: no cat\n"),
            Outcome(kind=OutcomeKind.AGENT_FAILED, exit_code=126, detail="no cat"),
        ),
        (fakes.ended(126, message="what the job wrote there"), Outcome(exit_code=126)),
        (
            fakes.ended(137, reason="OOMKilled"),
            Outcome(kind=OutcomeKind.OUT_OF_MEMORY, exit_code=137, detail="0Mi"),
        ),
        (
            fakes.ended(137, reason="OOMKilled", message="signal"),
            Outcome(kind=OutcomeKind.OUT_OF_MEMORY, exit_code=137, detail="0Mi", signal=9),
        ),
        (
            types.PodStatus(phase="Failed", reason="OutOfcpu", message="no cpu"),
            Outcome(
                kind=OutcomeKind.REJECTED, exit_code=1, detail="OutOfcpu: no cpu", requeue=True, began=False
            ),
        ),
        (fakes.ended(137, message="signal\n"), Outcome(exit_code=137, signal=9)),
        (fakes.ended(137, message="0m0.01s 0m0.00s"), Outcome(exit_code=137)),
        (fakes.ended(137), Outcome(kind=OutcomeKind.KILLED, exit_code=137)),
        (
            fakes.ended(128, reason="StartError", message='exec: "/bin/sh": no such file'),
            Outcome(kind=OutcomeKind.NO_SHELL, exit_code=1, detail="StartError"),
        ),
        (
            waiting("CreateContainerConfigError", "no\nkey"),
            Outcome(kind=OutcomeKind.CANNOT_START, exit_code=1, detail="CreateContainerConfigError: no key"),
        ),
        (
            waiting("CreateContainerConfigError", 'failed to prepare subPath for volumeMount "x"'),
            Outcome(
                kind=OutcomeKind.MOUNT_FAILED,
                exit_code=1,
                detail='CreateContainerConfigError: failed to prepare subPath for volumeMount "x"',
            ),
        ),
        (
            msgspec.structs.replace(looking(fakes.ended(0, reason="Completed")), phase="Pending"),
            None,
        ),
        (looking(waiting("PodInitializing")), None),
        (
            looking(fakes.ended(1, message="penstock: #K8S_MOUNT=/x: no such folder")),
            Outcome(kind=OutcomeKind.AGENT_FAILED, exit_code=1, detail="#K8S_MOUNT=/x: no such folder"),
        ),
        (
            looking(waiting("ImagePullBackOff", "no such image")),
            Outcome(kind=OutcomeKind.CANNOT_START, exit_code=1, detail="ImagePullBackOff: no such image"),
        ),
        (
            types.PodStatus(phase="Failed"),
            Outcome(kind=OutcomeKind.REJECTED, exit_code=1, detail="pod failed", requeue=True, began=False),
        ),
        (types.PodStatus(phase="Succeeded"), Outcome(exit_code=0)),
    ],
)
def test_the_outcome_is_the_containers_end(status: types.PodStatus, outcome: Outcome | None) -> None:
    """None while it runs."""
    assert outcomes.outcome_of(fakes.pod(status=status)) == outcome


def test_eviction_takes_precedence_over_the_exit_code() -> None:
    status = msgspec.structs.replace(fakes.ended(143), reason="Evicted", message="node was low on memory")
    assert outcomes.outcome_of(fakes.pod(status=status)) == Outcome(
        kind=OutcomeKind.EVICTED, exit_code=143, detail="Evicted: node was low on memory", requeue=True
    )


def test_a_disrupted_pod_is_requeued() -> None:
    condition = types.Condition(
        type="DisruptionTarget",
        status="True",
        reason="EvictionByEvictionAPI",
        message="Eviction API: evicting",
    )
    status = msgspec.structs.replace(fakes.ended(143), conditions=[condition])
    outcome = outcomes.outcome_of(fakes.pod(status=status, deleting=True))
    assert outcome == Outcome(
        kind=OutcomeKind.EVICTED,
        exit_code=143,
        detail="EvictionByEvictionAPI: Eviction API: evicting",
        requeue=True,
    )


def test_a_deleted_pod_is_reported_as_such() -> None:
    """With the container's exit code."""
    outcome = outcomes.outcome_of(fakes.pod(status=fakes.ended(143), deleting=True))
    assert outcome == Outcome(kind=OutcomeKind.POD_DELETED, exit_code=143)


def test_the_signal_of_a_deleted_pods_script_is_kept() -> None:
    """The container may end before its `kill` is answered; the pod is then deleted to be sure."""
    ended = fakes.ended(143, message="signal\n0m0.003s 0m0.001s\n")
    outcome = outcomes.outcome_of(fakes.pod(status=ended, deleting=True))
    assert outcome == Outcome(kind=OutcomeKind.POD_DELETED, exit_code=143, signal=15)


def test_success_of_a_deleted_pod_counts_only_if_slurm_stopped_it() -> None:
    """A pod deleted by hand fails its job; a script may answer Slurm's SIGTERM with exit 0."""
    outcome = outcomes.outcome_of(fakes.pod(status=fakes.ended(0, reason="Completed"), deleting=True))
    assert outcome is not None
    assert (outcome.exit_code, outcome.kind) == (reasons.LOST, OutcomeKind.POD_DELETED)
    assert outcome.as_asked() == Outcome(exit_code=0)
    assert reasons.VANISHED.as_asked() == Outcome(exit_code=reasons.LOST)
    assert reasons.NODE_LOST.as_asked() == reasons.NODE_LOST


class World:
    """A follower and its surroundings."""

    def __init__(self) -> None:
        self.kube = fakes.FakeKube()
        self.clock = fakes.ManualClock()
        self.pods = reflectors.Reflector(
            self.kube, kinds.PODS, types.Pod, indexes=podview.INDEXES, time=self.clock
        )
        self.nodes = reflectors.Reflector(self.kube, kinds.NODES, types.Node, time=self.clock)
        self.kube.add_node(fakes.node("n1"))
        self.follower = self.with_timeout(300.0)

    def with_timeout(self, seconds: float) -> follower.Follower:
        bridge = fakes.bridge(
            slurm=fakes.FakeSlurm(),
            kube=self.kube,
            pods=self.pods,
            nodes=self.nodes,
            time=self.clock,
            start_timeout=seconds,
        )
        return bridge.follower

    def follow(self, *names: str) -> asyncio.Task[Outcome]:
        gang = tuple(fakes.pod(name) for name in names)
        return asyncio.create_task(self.follower.end_of(gang))

    def show(self, name: str, status: types.PodStatus, *, deleted: bool = False) -> None:
        pod = fakes.pod(name, status=status)
        (self.pods._drop if deleted else self.pods._set)(f"default/{name}", pod)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_end_comes_by_the_watch() -> None:
    """Without a request."""
    world = World()
    end = world.follow("p")
    await settle()
    world.show("p", fakes.ended(7))
    assert await end == Outcome(exit_code=7)
    assert world.kube.calls == []


async def test_the_last_state_of_a_deleted_pod_counts() -> None:
    world = World()
    end = world.follow("p")
    await settle()
    world.show("p", fakes.ended(3), deleted=True)
    assert await end == Outcome(exit_code=3)


async def test_a_pod_missing_from_the_cache_is_read_from_the_api() -> None:
    """Only the API's 404 means that it is gone."""
    world = World()
    end = world.follow("p")
    await settle()
    world.show("p", fakes.running(), deleted=True)
    assert await end == reasons.VANISHED
    assert world.kube.calls == [("get", "pods", "p"), ("get", "nodes", "n1")]


async def test_a_pod_gone_with_its_node_is_requeued() -> None:
    world = World()
    del world.kube.objects["nodes", "", "n1"]
    end = world.follow("p")
    await settle()
    world.show("p", fakes.running(), deleted=True)
    assert await end == reasons.NODE_LOST


async def test_no_outcome_while_the_api_is_down() -> None:
    world = World()
    world.kube.refuse["get", "pods"] = errors.KubeUnavailable("down")
    end = world.follow("p")
    await settle()
    world.show("p", fakes.running(), deleted=True)
    await settle()
    assert not end.done()
    world.show("p", fakes.ended(0, reason="Completed"))
    assert await end == Outcome(exit_code=0)


async def test_the_uid_tells_pods_of_one_name_apart() -> None:
    world = World()
    world.kube.objects["pods", "default", "p"] = {
        "metadata": {"name": "p", "namespace": "default", "uid": "other"}
    }
    end = world.follow("p")
    await settle()
    world.show("p", fakes.running(), deleted=True)
    assert await end == reasons.VANISHED


async def test_a_rank_that_ends_early_breaks_the_gang() -> None:
    world = World()
    end = world.follow("p", "q")
    await settle()
    world.show("q", types.PodStatus(phase="Failed", reason="NodeShutdown", message="bye"))
    assert await end == Outcome(
        kind=OutcomeKind.REJECTED, exit_code=1, detail="NodeShutdown: bye", rank=1, requeue=True
    )


async def test_a_rank_that_slurm_releases_does_not_break_the_gang() -> None:
    """Its node's Epilog runs at once; the script has until KillWait."""
    world = World()
    gang = tuple(fakes.pod(name) for name in ("p", "q"))
    end = asyncio.create_task(world.follower.end_of(gang, lambda: True))
    await settle()
    world.show("q", fakes.running(), deleted=True)
    await settle()
    assert not end.done()
    world.show("p", fakes.ended(3))
    assert await end == Outcome(exit_code=3)


async def test_start_timeout_reports_the_clusters_warning() -> None:
    world = World()
    world.follower = world.with_timeout(0.0)
    world.kube.objects["pods", "default", "p"] = {
        "metadata": {"name": "p", "namespace": "default", "uid": "uid-p"}
    }
    world.kube.objects["events", "default", "e"] = {
        "type": "Warning",
        "reason": "FailedMount",
        "message": "hostPath type check failed: /nas is not a directory",
    }
    pod = fakes.pod("p", status=types.PodStatus())
    outcome = await world.follower.end_of((pod,))
    assert sentences.outcome(outcome) == (
        "not started within 0 s: FailedMount: hostPath type check failed: /nas is not a directory"
    )
