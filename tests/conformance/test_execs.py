"""Commands in containers, by which signals are passed on and output is fetched: how their ends are told."""

from __future__ import annotations

import asyncio

import pytest

from penstock import errors
from penstock.kube import execs, kubeconfig
from penstock_lab import testing
from tests.conformance import client

WAITS = "trap 'exit 5' USR1; while :; do sleep 0.1; done"


async def run(lab: testing.RunningLab, api: client.Client, script: str) -> bytes:
    """What the script prints; the errors of execs when it fails."""
    access, command = kubeconfig.load(lab.place.admin_kubeconfig), ("/bin/sh", "-c", script)
    printed = execs.stream(access, namespace=api.namespace, name="p", container="job", command=command)
    async with asyncio.timeout(client.PATIENCE):
        return b"".join([data async for _, data in printed])


def start(api: client.Client, node: str, script: str, **spec: object) -> None:
    api.create("pods", client.shell("p", script, **spec))
    api.bind("p", node)
    api.phase("p", "Running", "Succeeded")


async def test_command_is_killed_with_its_container(
    lab: testing.RunningLab, api: client.Client, node: str
) -> None:
    """All processes are killed with the first one: the command fails with 137."""
    start(api, node, WAITS)
    with pytest.raises(errors.KubeError, match=r"non-zero exit code.* 137$"):
        await run(lab, api, "kill -USR1 1; while :; do :; done")
    assert client.terminated(api.phase("p", "Failed"))["exitCode"] == 5


async def test_exec_in_ended_container(lab: testing.RunningLab, api: client.Client, node: str) -> None:
    """An error of the server: the client may retry, and learns of the end elsewhere."""
    start(api, node, "exit 0")
    api.phase("p", "Succeeded")
    with pytest.raises(errors.KubeUnavailable):
        await run(lab, api, "exit 0")


async def test_command_runs_as_the_containers_user(
    lab: testing.RunningLab, api: client.Client, node: str
) -> None:
    """With all its groups, too."""
    user = {"runAsUser": 65534, "runAsGroup": 4, "supplementalGroups": [20, 24]}
    start(api, node, WAITS, securityContext=user)
    assert await run(lab, api, "id -u; id -G") == b"65534\n4 20 24\n"
