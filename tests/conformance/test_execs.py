"""Commands in containers, by which signals are passed on and output is fetched: input, output, and ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

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


@contextlib.asynccontextmanager
async def conversation(
    lab: testing.RunningLab, api: client.Client, script: str
) -> AsyncIterator[execs.Conversation]:
    """A running script with which to exchange data."""
    access, command = kubeconfig.load(lab.place.admin_kubeconfig), ("/bin/sh", "-c", script)
    opened = execs.converse(access, namespace=api.namespace, name="p", container="job", command=command)
    async with asyncio.timeout(client.PATIENCE), opened as running:
        yield running


async def received(running: execs.Conversation, size: int) -> bytes:
    """That many bytes of the command's output."""
    said = b""
    async with contextlib.aclosing(running.printed()) as printed:
        async for channel, data in printed:
            assert channel == 1, data
            said += data
            if len(said) >= size:
                break
    return said


async def test_input_reaches_the_command_unchanged(
    lab: testing.RunningLab, api: client.Client, node: str
) -> None:
    """Every byte value, in more than one message, and answered while the input stays open."""
    start(api, node, WAITS)
    data = bytes(range(256)) * 2048
    async with conversation(lab, api, "exec cat") as running:
        sending = asyncio.create_task(running.send(data))
        assert await received(running, len(data)) == data
        await sending


async def test_empty_input_is_no_end_of_file(lab: testing.RunningLab, api: client.Client, node: str) -> None:
    """It keeps a silent connection open, and the command notices nothing of it."""
    start(api, node, WAITS)
    async with conversation(lab, api, "read -r line; echo got $line") as running:
        await running.send(b"")
        await running.send(b"it\n")
        assert await received(running, 7) == b"got it\n"


async def test_command_outlives_its_conversation(
    lab: testing.RunningLab, api: client.Client, node: str
) -> None:
    """When the client leaves, the command's input ends, and it goes on."""
    start(api, node, WAITS)
    async with conversation(lab, api, "echo here; read -r line; echo over >/tmp/over") as running:
        assert await received(running, 5) == b"here\n"
    assert await run(lab, api, "until [ -s /tmp/over ]; do sleep 0.1; done; cat /tmp/over") == b"over\n"
