"""How a job ends: read off its pod, waited for, and never guessed."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from penstock import errors
from penstock.bridge import following, outcomes
from penstock.kube import reflecting, types
from tests.unit import fakes


def waiting(reason: str, message: str = "") -> types.PodStatus:
    state = types.ContainerState(waiting=types.Waiting(reason=reason, message=message))
    return types.PodStatus(container_statuses=[types.ContainerStatus(name="job", state=state)])


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (types.PodStatus(), None),
        (types.PodStatus(phase="Running"), None),
        (waiting("ContainerCreating"), None),
        (waiting("ErrImagePull"), None),
        (
            waiting("ImagePullBackOff", "no such image"),
            outcomes.Outcome(1, "ImagePullBackOff: no such image"),
        ),
        (fakes.ended(0, reason="Completed"), outcomes.Outcome(0)),
        (fakes.ended(7), outcomes.Outcome(7)),
        (fakes.ended(137, reason="OOMKilled"), outcomes.Outcome(137, "OOMKilled")),
        (
            types.PodStatus(phase="Failed", reason="OutOfcpu", message="no cpu"),
            outcomes.Outcome(1, "OutOfcpu: no cpu"),
        ),
        (types.PodStatus(phase="Failed"), outcomes.Outcome(1, "pod failed")),
        (types.PodStatus(phase="Succeeded"), outcomes.Outcome(0)),
    ],
)
def test_the_outcome_is_the_containers(status: types.PodStatus, outcome: outcomes.Outcome | None) -> None:
    """Exit code and reason, or None while it goes on."""
    assert outcomes.outcome_of(fakes.pod(status=status)) == outcome


def test_an_evicted_pod_says_so_although_its_container_has_a_code() -> None:
    """The pod's own reason wins."""
    status = msgspec.structs.replace(fakes.ended(143), reason="Evicted", message="node was low on memory")
    assert outcomes.outcome_of(fakes.pod(status=status)) == outcomes.Outcome(
        143, "Evicted: node was low on memory"
    )


def reflector() -> reflecting.Reflector[types.Pod]:
    found = reflecting.Reflector(fakes.FakeKube(), "pods", types.Pod, time=fakes.ManualClock())
    found.listed.set()
    return found


async def test_the_end_comes_by_the_watch() -> None:
    """No request is made for it."""
    kube, pods = fakes.FakeKube(), reflector()
    waiting = asyncio.create_task(following.end_of(fakes.pod("p"), kube=kube, pods=pods))
    await asyncio.sleep(0)
    pods._set("default/p", fakes.pod("p", status=fakes.ended(7), version="2"))
    assert await waiting == outcomes.Outcome(7)
    assert kube.calls == []


async def test_a_pod_missing_from_the_picture_is_looked_for() -> None:
    """Only a 404 from the API itself means that it is gone."""
    kube, pods = fakes.FakeKube(), reflector()
    pods.objects["default/p"] = fakes.pod("p")
    waiting = asyncio.create_task(following.end_of(fakes.pod("p"), kube=kube, pods=pods))
    await asyncio.sleep(0)
    pods._drop("default/p", fakes.pod("p"))
    assert await waiting == outcomes.VANISHED
    assert kube.calls == [("get", "pods", "p")]


async def test_an_api_that_does_not_answer_ends_nothing() -> None:
    """The job goes on, whatever the picture lacks."""
    kube, pods = fakes.FakeKube(), reflector()
    kube.refuse["get", "pods"] = errors.KubeUnavailable("down")
    waiting = asyncio.create_task(following.end_of(fakes.pod("p"), kube=kube, pods=pods))
    await asyncio.sleep(0)
    pods._drop("default/p", fakes.pod("p"))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    pods._set("default/p", fakes.pod("p", status=fakes.ended(0, reason="Completed"), version="3"))
    assert await waiting == outcomes.Outcome(0)


async def test_another_pod_of_the_same_name_is_not_ours() -> None:
    """The uid decides."""
    kube, pods = fakes.FakeKube(), reflector()
    kube.objects["pods", "default", "p"] = {"metadata": {"name": "p", "namespace": "default", "uid": "other"}}
    pods.objects["default/p"] = fakes.pod("p")
    waiting = asyncio.create_task(following.end_of(fakes.pod("p"), kube=kube, pods=pods))
    await asyncio.sleep(0)
    pods._drop("default/p", fakes.pod("p"))
    assert await waiting == outcomes.VANISHED
