"""Commands in running containers, what containers say when they end, and the mark of an eviction."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import errors
from penstock.kube import execs, kubeconfig
from tests.devcluster import clusters as testing

WAITS = "trap 'echo caught; exit 5' USR1; while :; do sleep 0.05; done"


async def run(
    cluster: testing.Running, api: testing.Client, name: str, *command: str, token: str = ""
) -> None:
    access = kubeconfig.Access(server=cluster.url, token=token or cluster.token)
    await execs.run(access, namespace=api.namespace, name=name, container="c", command=command)


def start(api: testing.Client, name: str, script: str) -> None:
    api.create("pods", testing.pod(name, "/bin/sh", "-c", script))
    api.phase(name, "Running")


async def test_a_command_runs_in_the_container(cluster: testing.Running, api: testing.Client) -> None:
    """It sees the container's processes: a signal to process 1 is a signal to the container's first one."""
    start(api, "p", WAITS)
    await run(cluster, api, "p", "/bin/sh", "-c", "kill -USR1 1")
    pod = api.phase("p", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 5
    assert "caught" in api.log("p")


async def test_a_failing_command_says_so(cluster: testing.Running, api: testing.Client) -> None:
    """The exit code is in the error."""
    start(api, "p", WAITS)
    with pytest.raises(errors.KubeError, match="exit status 3"):
        await run(cluster, api, "p", "/bin/sh", "-c", "exit 3")


async def test_what_cannot_be_run_is_refused_in_words(cluster: testing.Running, api: testing.Client) -> None:
    """No such pod, no right to, and a container that has ended."""
    with pytest.raises(errors.KubeNotFound):
        await run(cluster, api, "nowhere", "true")
    start(api, "seen", WAITS)
    with pytest.raises(errors.KubeError, match="cannot create"):
        await run(cluster, api, "seen", "true", token=cluster.viewer_token)
    api.create("pods", testing.pod("over", "true"))
    api.phase("over", "Succeeded")
    with pytest.raises(errors.KubeError, match="not running"):
        await run(cluster, api, "over", "true")


def test_last_words_are_in_the_status(api: testing.Client) -> None:
    """What a container writes to its termination log becomes its message, and the host sees none of it."""
    script = "echo signal > /dev/termination-log; exit 9"
    api.create("pods", testing.pod("p", "/bin/sh", "-c", script))
    pod = api.phase("p", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "signal\n"
    assert not Path("/dev/termination-log").exists()


def test_an_evicted_pod_carries_the_mark(api: testing.Client) -> None:
    """The status before it goes tells that the cluster, not the owner, ends it."""
    start(api, "p", "trap '' TERM; while :; do sleep 0.05; done")
    api.call("POST", api.path("pods", "p/eviction"), {"metadata": {"name": "p"}})
    conditions = api.get("pods", "p")["status"]["conditions"]
    marks = [one["reason"] for one in conditions if one["type"] == "DisruptionTarget"]
    assert marks == ["EvictionByEvictionAPI"]


@pytest.mark.parametrize("image", ["Bad::Name", "name/UPPER", "a b", "name:tag:tag"])
def test_an_image_name_that_is_none_says_so(api: testing.Client, image: str) -> None:
    """The pod waits with kubelet's reason instead of running anything."""
    api.create("pods", testing.pod("p", "true", container={"image": image}))
    states = "status", "containerStatuses"
    pod = api.until(lambda pod: pod[states[0]].get(states[1]), "pods", "p")
    assert pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "InvalidImageName"


@pytest.mark.parametrize(
    "image", ["any", "nas-hub.local:5407/team/pytorch:2.1-cuda", f"a/b@sha256:{'0' * 64}"]
)
def test_image_names_in_use_are_taken(api: testing.Client, image: str) -> None:
    """Registry with port, path, tag and digest."""
    api.create("pods", testing.pod("p", "true", container={"image": image}))
    assert api.phase("p", "Succeeded")
