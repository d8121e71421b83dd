"""Conversations on penstockd's socket, with fakes of Slurm and Kubernetes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import crashpoints, errors
from penstock.bridge import container, joboutput, run
from penstock.daemon import metrics, server
from penstock.hooks import wire
from penstock.kube import kinds, podview, reflectors, types
from penstock.model import jobs
from tests.unit import fakes

UID = os.getuid()


class World:
    """A server on a socket and its peers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.peers: list[Peer] = []
        self.clock = fakes.ManualClock()
        self.slurm, self.kube = fakes.FakeSlurm(), fakes.FakeKube()
        self.pods = reflectors.Reflector(
            self.kube, kinds.PODS, types.Pod, indexes=podview.INDEXES, time=self.clock
        )
        nodes = reflectors.Reflector(self.kube, kinds.NODES, types.Node, time=self.clock)
        nodes.objects["/n1"] = fakes.node("n1")
        self.kube.add_node(fakes.node("n1"))
        for picture in (self.pods, nodes):
            picture.listed.set()
        self.bridge = fakes.bridge(
            slurm=self.slurm, kube=self.kube, pods=self.pods, nodes=nodes, time=self.clock
        )
        self.kube.on_bind = lambda key: self.pods._set(
            "/".join(key[1:]), self.kube.show(key, fakes.running())
        )
        self.recovered = asyncio.Event()
        self.recovered.set()
        self.server = server.Server(self.bridge, frozenset({UID}), self.recovered, metrics.Metrics())

    def run(self, job_id: int) -> None:
        """Add a running job of ours."""
        allocation = fakes.allocation(job_id)
        identity = fakes.identity(job_id, uid=UID)
        self.slurm.add(jobs.Allocation(identity=identity, shares=allocation.shares, partition="gpu"))

    def allow(self, *prefixes: str, forbidden: str) -> None:
        """Restrict the images and forbid a directive."""
        self.bridge.context.settings = msgspec.structs.replace(
            self.bridge.context.settings, allowed_images=prefixes, forbidden_directives=(forbidden,)
        )

    def end(self, status: types.PodStatus) -> None:
        """Set the status of the job's pod."""
        (key,) = [key for key in self.kube.objects if key[0] == "pods"]
        self.pods._set("/".join(key[1:]), self.kube.show(key, status))


class Peer:
    """A hook's or launcher's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *fields: bytes | str) -> None:
        self.writer.write(wire.pack(*fields))

    async def hear(self) -> list[bytes]:
        size = int.from_bytes(await asyncio.wait_for(self.reader.readexactly(4), 60), "big")
        return wire.unpack(await self.reader.readexactly(size))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with served(tmp_path / "s") as made:
        yield made


@contextlib.asynccontextmanager
async def served(path: Path) -> AsyncIterator[World]:
    """A world with an open socket."""
    world = World(path)
    listening = await asyncio.start_unix_server(world.server.handle, world.path)
    yield world
    for peer in world.peers:
        peer.writer.close()
        await peer.writer.wait_closed()
    listening.close()
    await asyncio.sleep(0.01)  # the server notices that everybody has left


async def connect(world: World) -> Peer:
    peer = Peer(*await asyncio.open_unix_connection(world.path))
    world.peers.append(peer)
    return peer


def launch(
    peer: Peer,
    job_id: int,
    *,
    attach: str = "0",
    script: bytes = b"#!/x\ntrue\n",
    stdout: str = "/nas/o",
    skip: str = "0",
) -> None:
    fields = [
        "slurm_job_id",
        str(job_id),
        "attach",
        attach,
        "skip",
        skip,
        "skip_error",
        "0",
        "interpreter",
        "/bin/sh",
        "workdir",
        "/nas",
    ]
    peer.send("launch", *fields, "script", script, "stdout", stdout, "stderr", stdout)


async def test_a_launcher_is_told_start_and_exit_code(world: World) -> None:
    world.run(7)
    peer = await connect(world)
    launch(peer, 7)
    assert await peer.hear() == [b"started"]
    world.end(fakes.ended(7))
    assert await peer.hear() == [b"exit", b"7"]


async def test_a_signal_reaches_the_pod(world: World) -> None:
    """By a command in the container."""
    world.run(7)
    peer = await connect(world)
    launch(peer, 7)
    await peer.hear()
    peer.send("signal", "number", "10", "everyone", "0")
    peer.send("signal", "number", "15", "everyone", "1")
    await until(lambda: len(world.kube.commands) == 2)
    assert [command[2] for command in world.kube.commands] == ["kill -USR1 1", "kill -TERM -1"]
    assert [await peer.hear(), await peer.hear()] == [[b"delivered"], [b"delivered"]]
    world.end(fakes.ended(137, message="signal"))
    assert await peer.hear() == [b"signal", b"9"]


@pytest.mark.parametrize("ends", [True, False])
async def test_signals_wait_for_the_start_except_sigterm(world: World, ends: bool) -> None:
    """Pulling the image may take long; a SIGTERM overtakes the other signals."""
    world.kube.on_bind = lambda key: world.pods._set(
        "/".join(key[1:]), world.kube.show(key, types.PodStatus())
    )
    world.kube.refuse["run", "pods"] = errors.KubeError("container job is not running", status=400)
    world.run(7)
    peer = await connect(world)
    launch(peer, 7)
    assert await peer.hear() == [b"started"]
    peer.send("signal", "number", "10", "everyone", "0")
    if ends:
        peer.send("signal", "number", "15", "everyone", "1")
        assert await peer.hear() == [b"delivered"]
        assert [key for key in world.kube.objects if key[0] == "pods"] == []
        return
    for _ in range(5):
        await asyncio.sleep(0.01)
    assert world.kube.commands == []
    del world.kube.refuse["run", "pods"]
    world.end(fakes.running())
    assert await peer.hear() == [b"delivered"]
    assert [command[2] for command in world.kube.commands] == ["kill -USR1 1"]


@pytest.mark.parametrize("tries", [1, 2, 3])
async def test_waiting_signals_keep_their_order(
    world: World, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    """The launcher is told of each delivery in that order."""
    world.kube.on_bind = lambda key: world.pods._set(
        "/".join(key[1:]), world.kube.show(key, types.PodStatus())
    )
    world.run(7)
    peer = await connect(world)
    received: list[str] = []
    tried: list[int] = []
    heard: list[int] = []
    all_came = asyncio.Event()

    def reach(step: str) -> None:
        received.extend([step] * (step == "signal.received"))
        if len(received) == 3:
            all_came.set()

    async def signalled(pod: types.Pod, number: int, **how: bool) -> None:
        await all_came.wait()
        tried.append(number)
        if len(tried) <= tries:
            raise errors.KubeError("container job is not running", status=400)
        heard.append(number)

    monkeypatch.setattr(crashpoints, "reach", reach)
    monkeypatch.setattr(container.Container, "signal", signalled)
    launch(peer, 7)
    assert await peer.hear() == [b"started"]
    for number in ("10", "12", "1"):
        peer.send("signal", "number", number, "everyone", "0")
    for _ in range(3):
        assert await peer.hear() == [b"delivered"]
    assert heard == [10, 12, 1]


async def test_success_during_a_sigterm_is_kept(world: World) -> None:
    """The container's end interrupts the `kill`, so the pod is deleted to be sure."""
    world.run(7)
    peer = await connect(world)
    launch(peer, 7)
    await peer.hear()
    (key,) = [key for key in world.kube.objects if key[0] == "pods"]
    pod = world.kube.show(key, fakes.ended(0, reason="Completed"))
    world.kube.refuse["run", "pods"] = errors.KubeError("a command in pod p failed: exit status 137")
    peer.send("signal", "number", "15", "everyone", "1")
    assert await peer.hear() == [b"delivered"]
    assert key not in world.kube.objects
    leaving = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    world.pods._set("/".join(key[1:]), msgspec.structs.replace(pod, metadata=leaving))
    assert await peer.hear() == [b"exit", b"0"]
    assert world.slurm.comments == {}


async def test_output_is_fetched_and_the_agent_told_when_it_is_written(world: World) -> None:
    """From the launcher's offset; the agent is told after the launcher has confirmed."""
    world.run(7)
    world.kube.printed = [(1, b"lo "), (2, b"a trouble of the command's own"), (1, b"world")]
    peer = await connect(world)
    launch(peer, 7, stdout="/home/o", skip="3")
    assert await peer.hear() == [b"started"]
    assert await peer.hear() == [b"output", b"lo ", b"1"]
    assert await peer.hear() == [b"output", b"world", b"1"]
    assert await peer.hear() == [b"sync"]
    agent = "/penstock/agent.sh"
    assert world.kube.commands == [("/bin/sh", agent, "collect", "1", "3")]
    peer.send("synced")
    await until(lambda: len(world.kube.commands) == 2)
    assert world.kube.commands[1] == ("/bin/sh", "-c", ": >/penstock-output/collected")
    world.end(fakes.ended(0))
    assert await peer.hear() == [b"exit", b"0"]


async def test_incomplete_output_is_noted(world: World) -> None:
    """The container was killed as a whole."""
    world.run(7)
    world.kube.refuse["stream", "pods"] = errors.KubeUnavailable("broke off")
    peer = await connect(world)
    launch(peer, 7, stdout="/home/o")
    assert await peer.hear() == [b"started"]
    world.end(fakes.ended(137, message="0m0.01s"))
    assert (await peer.hear())[1].startswith(b"the container ended before the last of its output")
    assert await peer.hear() == [b"sync"]
    peer.send("synced")
    assert await peer.hear() == [b"exit", b"137"]


@pytest.mark.parametrize("script", [b"#!/x\n#K8S_COMMAND=@entrypoint\n", b"#!/x\ntrue\n"])
async def test_a_hanging_stream_is_noted_as_incomplete(
    world: World, script: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*words: Any, **which: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr(run, "UNDER_WAY_SECONDS", 0.05)
    monkeypatch.setattr(run, "LAST_OUTPUT_SECONDS", 0.05)
    monkeypatch.setattr(world.kube, "log", hangs)
    monkeypatch.setattr(world.kube, "stream", hangs)
    world.run(7)
    peer = await connect(world)
    launch(peer, 7, stdout="/home/o", script=script)
    assert await peer.hear() == [b"started"]
    world.end(fakes.ended(0))
    assert await peer.hear() == [b"note", joboutput.INCOMPLETE.encode()]
    assert await peer.hear() == [b"exit", b"0"]


async def test_a_temporary_403_at_launch_is_retried(world: World) -> None:
    """An API server that has just started forbids everything."""
    world.run(7)
    refusals = iter([errors.KubeNotAllowed("forbidden for now")] * 3)
    world.kube.refuse = RunsOut(("create", "pods"), refusals)
    peer = await connect(world)
    launch(peer, 7)
    assert await peer.hear() == [b"started"]


async def test_a_persistent_403_ends_the_job_with_the_reason(world: World) -> None:
    world.run(7)
    world.kube.refuse["create", "pods"] = errors.KubeNotAllowed('User "p" cannot create resource "pods"')
    before = world.clock.now()
    peer = await connect(world)
    launch(peer, 7)
    assert await peer.hear() == [b"note", b'not started: User "p" cannot create resource "pods"']
    assert await peer.hear() == [b"exit", b"1"]
    assert 30 <= world.clock.now() - before < 60


class RunsOut(dict[tuple[str, str], Exception]):
    """Refuses one kind of request with these errors, one after the other."""

    def __init__(self, key: tuple[str, str], refusals: Iterator[Exception]) -> None:
        super().__init__()
        self.key, self.refusals = key, refusals

    def get(self, key: Any, default: Any = None) -> Any:
        return next(self.refusals, None) if key == self.key else default


async def until(true: Callable[[], bool]) -> None:
    for _ in range(6000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("did not become true")


async def test_a_signal_of_a_reattaching_launcher_waits_for_the_pods(world: World) -> None:
    """It repeats what a killed penstockd did not deliver, before the gang is found."""
    world.run(7)
    peer = await connect(world)
    launch(peer, 7)
    peer.send("signal", "number", "10", "everyone", "0")
    assert await peer.hear() == [b"started"]
    assert await peer.hear() == [b"delivered"]
    assert [command[2] for command in world.kube.commands] == ["kill -USR1 1"]


async def test_the_launcher_of_a_requeued_job_stays_connected(world: World) -> None:
    """If it reconnected, it would start the job a second time."""
    world.run(7)
    peer = await connect(world)
    launch(peer, 7)
    await peer.hear()
    world.end(types.PodStatus(phase="Failed", reason="NodeShutdown", message="bye"))
    assert await peer.hear() == [b"note", b"NodeShutdown: bye"]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(peer.reader.read(1), 0.2)
    peer.send("signal", "number", "15", "everyone", "1")
    assert await peer.hear() == [b"signal", b"15"]
    assert world.slurm.requeued == [7]
    assert world.slurm.comments[7] == "NodeShutdown: bye"
