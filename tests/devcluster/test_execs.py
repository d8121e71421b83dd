"""Commands in running containers, what containers say when they end, and the mark of an eviction."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock import errors
from penstock.kube import execs, kubeconfig
from tests.devcluster import clusters as testing
from tests.devcluster import marks

WAITS = "trap 'echo caught; exit 5' USR1; while :; do sleep 0.05; done"


async def run(
    cluster: testing.Running, api: testing.Client, name: str, *command: str, token: str = ""
) -> bytes:
    """What the command prints; the errors of execs when it fails."""
    access = kubeconfig.Access(server=cluster.url, token=token or cluster.token)
    printed = execs.stream(access, namespace=api.namespace, name=name, container="c", command=command)
    async with asyncio.timeout(60):
        return b"".join([data async for _, data in printed])


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


async def test_failing_command_reports_exit_code(cluster: testing.Running, api: testing.Client) -> None:
    """The exit code is in the error."""
    start(api, "p", WAITS)
    with pytest.raises(errors.KubeError, match="exit status 3"):
        await run(cluster, api, "p", "/bin/sh", "-c", "exit 3")


async def test_exec_errors(cluster: testing.Running, api: testing.Client) -> None:
    """No such pod, no permission, and a container that has ended."""
    with pytest.raises(errors.KubeNotFound):
        await run(cluster, api, "nowhere", "true")
    start(api, "seen", WAITS)
    with pytest.raises(errors.KubeError, match="cannot create"):
        await run(cluster, api, "seen", "true", token=cluster.viewer_token)
    api.create("pods", testing.pod("over", "true"))
    api.phase("over", "Succeeded")
    with pytest.raises(errors.KubeUnavailable, match="container not found"):
        await run(cluster, api, "over", "true")


async def test_command_is_killed_with_its_container(cluster: testing.Running, api: testing.Client) -> None:
    """The kernel kills all processes of a container with the first one: 128 + 9, as a runtime reports it."""
    start(api, "p", WAITS)
    with pytest.raises(errors.KubeError, match="exit status 137"):
        await run(cluster, api, "p", "/bin/sh", "-c", "kill -USR1 1; while :; do :; done")


async def test_command_has_the_containers_groups_but_not_its_path(
    cluster: testing.Running, api: testing.Client
) -> None:
    """nsenter and setpriv are found whatever the pod's PATH is."""
    spec = {"securityContext": {"runAsUser": 65534, "runAsGroup": 4, "supplementalGroups": [20, 24]}}
    more = {"env": [{"name": "PATH", "value": "/nowhere"}]}
    script = "while :; do /bin/sleep 0.05; done"
    api.create("pods", testing.pod("p", "/bin/sh", "-c", script, container=more, **spec))
    api.phase("p", "Running")
    said = await run(cluster, api, "p", "/bin/sh", "-c", "/usr/bin/id -G; echo $PATH")
    assert said == b"4 20 24\n/nowhere\n"


async def test_command_ends_after_client_disconnects(cluster: testing.Running, api: testing.Client) -> None:
    """Its next output ends it, as with a closed pipe."""
    start(api, "p", WAITS)
    mark = marks.new()
    script = f": {mark}; while :; do echo on and on; sleep 0.05; done"
    access = kubeconfig.Access(server=cluster.url, token=cluster.token)
    words = ("/bin/sh", "-c", script)
    printed = execs.stream(access, namespace=api.namespace, name="p", container="c", command=words)
    assert await anext(printed) == (1, b"on and on\n")
    await printed.aclose()
    assert await asyncio.to_thread(marks.left_over, mark) == []


def test_termination_message_is_in_the_status(api: testing.Client) -> None:
    """What a container writes to its termination log becomes its message, and is not visible on the host."""
    script = "echo signal > /dev/termination-log; exit 9"
    api.create("pods", testing.pod("p", "/bin/sh", "-c", script))
    pod = api.phase("p", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "signal\n"
    assert not Path("/dev/termination-log").exists()


def test_long_termination_message_is_truncated_to_its_end(api: testing.Client) -> None:
    """A kubelet reads a limited number of bytes from the end of the file."""
    api.create("pods", testing.pod("p", "/bin/sh", "-c", "seq -f %07g 1000 > /dev/termination-log"))
    pod = api.phase("p", "Succeeded")
    message = pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    assert (len(message), message.splitlines()[-1]) == (4096, "0001000")


def test_evicted_pod_has_disruption_condition(api: testing.Client) -> None:
    """The status before its removal says that the cluster, not the owner, ends it."""
    start(api, "p", "trap '' TERM; while :; do sleep 0.05; done")
    api.call("POST", api.path("pods", "p/eviction"), {"metadata": {"name": "p"}})
    conditions = api.get("pods", "p")["status"]["conditions"]
    marks = [one["reason"] for one in conditions if one["type"] == "DisruptionTarget"]
    assert marks == ["EvictionByEvictionAPI"]


@pytest.mark.parametrize("image", ["Bad::Name", "name/UPPER", "a b", "name:tag:tag"])
def test_invalid_image_name(api: testing.Client, image: str) -> None:
    """The pod waits with kubelet's reason instead of running anything."""
    api.create("pods", testing.pod("p", "true", container={"image": image}))
    states = "status", "containerStatuses"
    pod = api.until(lambda pod: pod[states[0]].get(states[1]), "pods", "p")
    assert pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "InvalidImageName"


@pytest.mark.parametrize(
    "image", ["any", "nas-hub.local:5407/team/pytorch:2.1-cuda", f"a/b@sha256:{'0' * 64}"]
)
def test_valid_image_names(api: testing.Client, image: str) -> None:
    """Registry with port, path, tag and digest."""
    api.create("pods", testing.pod("p", "true", container={"image": image}))
    assert api.phase("p", "Succeeded")
