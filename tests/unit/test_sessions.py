"""Conversations on penstockd's socket, with a real socket and Slurm and Kubernetes played by fakes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import errors
from penstock.bridge import bridge as bridging
from penstock.bridge import draining
from penstock.daemon import metrics, server
from penstock.hooks import wire
from penstock.kube import reflecting, types
from penstock.model import jobs
from tests.unit import fakes

UID = os.getuid()


class World:
    """A server on a socket, and both sides of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.peers: list[Peer] = []
        self.clock = fakes.ManualClock()
        self.slurm, self.kube = fakes.FakeSlurm(), fakes.FakeKube()
        self.pods = reflecting.Reflector(self.kube, "pods", types.Pod, time=self.clock)
        nodes = reflecting.Reflector(self.kube, "nodes", types.Node, time=self.clock)
        nodes.objects["/n1"] = fakes.node("n1")
        self.kube.add_node(fakes.node("n1"))
        for picture in (self.pods, nodes):
            picture.listed.set()
        self.bridge = bridging.Bridge(
            slurm=self.slurm,
            kube=self.kube,
            pods=self.pods,
            nodes=nodes,
            settings=fakes.SETTINGS,
            time=self.clock,
            start_timeout=300,
        )
        self.kube.on_bind = lambda key: self.pods._set(
            "/".join(key[1:]), self.kube.show(key, fakes.running())
        )
        self.recovered = asyncio.Event()
        self.recovered.set()
        self.server = server.Server(
            self.bridge,
            frozenset({UID}),
            self.recovered,
            draining.Drainer(self.bridge),
            metrics.Metrics(),
            self.clock,
        )

    def run(self, job_id: int) -> None:
        """A running job of ours."""
        allocation = fakes.allocation(job_id)
        identity = fakes.identity(job_id, uid=UID)
        self.slurm.add(jobs.Allocation(identity=identity, shares=allocation.shares, partition="gpu"))

    def end(self, status: types.PodStatus) -> None:
        """The job's pod gets this status."""
        (key,) = [key for key in self.kube.objects if key[0] == "pods"]
        self.pods._set("/".join(key[1:]), self.kube.show(key, status))


class Peer:
    """The hook's or launcher's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *fields: bytes | str) -> None:
        self.writer.write(wire.pack(*fields))

    async def hear(self) -> list[bytes]:
        size = int.from_bytes(await asyncio.wait_for(self.reader.readexactly(4), 60), "big")
        return wire.unpack(await self.reader.readexactly(size))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path / "s")
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


async def test_a_job_is_launched_and_its_end_is_told(world: World) -> None:
    """started, then the exit code."""
    world.run(7)
    peer = await connect(world)
    launch(peer, 7)
    assert await peer.hear() == [b"started"]
    world.end(fakes.ended(7))
    assert await peer.hear() == [b"exit", b"7"]


async def test_a_signal_reaches_the_pod(world: World) -> None:
    """As a command in the container."""
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


async def test_output_is_fetched_and_the_agent_told_when_it_is_written(world: World) -> None:
    """From where the launcher stopped; the mark comes after the launcher's own word."""
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


async def test_output_that_cannot_be_fetched_is_said(world: World) -> None:
    """The container was killed as a whole: its last words may be missing."""
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


async def test_a_right_that_is_missing_for_a_moment_is_waited_for(world: World) -> None:
    """An API server that has just started forbids everything; the job starts when it does no longer."""
    world.run(7)
    refusals = iter([errors.KubeNotAllowed("forbidden for now")] * 3)
    world.kube.refuse = RunsOut(("create", "pods"), refusals)
    peer = await connect(world)
    launch(peer, 7)
    assert await peer.hear() == [b"started"]


async def test_a_right_that_stays_missing_ends_the_job_with_the_reason(world: World) -> None:
    """After a bounded time, in the API's words."""
    world.run(7)
    world.kube.refuse["create", "pods"] = errors.KubeNotAllowed('User "p" cannot create resource "pods"')
    before = world.clock.now()
    peer = await connect(world)
    launch(peer, 7)
    assert await peer.hear() == [b"note", b'not started: User "p" cannot create resource "pods"']
    assert await peer.hear() == [b"exit", b"1"]
    assert 30 <= world.clock.now() - before < 60


class RunsOut(dict[tuple[str, str], Exception]):
    """Refusals of one kind of request, one after the other, until there are no more."""

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


async def test_a_signal_that_comes_with_the_launchers_return_waits_for_the_pods(world: World) -> None:
    """The launcher tells again what a killed penstockd did not deliver, before anything is attached."""
    world.run(7)
    peer = await connect(world)
    launch(peer, 7)
    peer.send("signal", "number", "10", "everyone", "0")
    assert await peer.hear() == [b"started"]
    assert await peer.hear() == [b"delivered"]
    assert [command[2] for command in world.kube.commands] == ["kill -USR1 1"]


async def test_a_requeued_jobs_launcher_is_kept_until_slurm_ends_it(world: World) -> None:
    """It must not connect again and start the job a second time."""
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


async def test_somebody_elses_job_is_refused(world: World) -> None:
    """The uid of the socket is not the job's."""
    world.slurm.add(fakes.allocation(8))
    peer = await connect(world)
    launch(peer, 8)
    assert (await peer.hear())[0] == b"note"
    assert await peer.hear() == [b"exit", b"126"]
    assert not world.kube.calls


async def test_a_wrong_directive_fails_the_job_in_words(world: World) -> None:
    """Nothing is made in the cluster."""
    world.run(7)
    peer = await connect(world)
    launch(peer, 7, script=b"#!/x\n#K8S_IMAGES=x\ntrue\n")
    assert b"#K8S_IMAGES is not known" in (await peer.hear())[1]
    assert await peer.hear() == [b"exit", b"1"]
    assert not world.kube.calls


async def test_attaching_to_a_pod_that_is_gone_ends_the_job(world: World) -> None:
    """It is never started a second time."""
    world.run(7)
    peer = await connect(world)
    launch(peer, 7, attach="1")
    assert (await peer.hear())[0] == b"note"
    assert await peer.hear() == [b"exit", b"1"]
    assert not [call for call in world.kube.calls if call[0] == "create"]


async def test_a_pod_that_goes_after_a_binding_without_answer_is_not_made_again(world: World) -> None:
    """The script may have begun: from the word to the launcher on there is this gang and no other."""
    world.run(7)

    def bound_and_deleted(key: tuple[str, str, str]) -> None:
        del world.kube.objects[key]
        raise errors.KubeUnavailable("the answer was lost")

    world.kube.on_bind = bound_and_deleted
    peer = await connect(world)
    launch(peer, 7)
    assert await peer.hear() == [b"started"]
    assert await peer.hear() == [b"note", b"the job's pod was deleted from outside"]
    assert await peer.hear() == [b"exit", b"1"]
    assert len([call for call in world.kube.calls if call[:2] == ("create", "pods")]) == 1


async def test_hooks_are_answered(world: World) -> None:
    """Admission with its reason, release, and a drain when time is over."""
    world.run(7)
    for question, word in (
        (("admit", "job", "7", "restart", "0", "uid", str(UID)), b"yes"),
        (("release", "job", "7", "node", "n1"), b"gone"),
        (("abandon", "job", "7", "node", "n1"), b"drained"),
        (("ping",), b"pong"),
    ):
        peer = await connect(world)
        peer.send(*question)
        assert (await peer.hear())[0] == word
    assert world.slurm.reasons == {"n1": "penstock: pods of job 7 may still run here"}


async def test_a_refused_job_is_put_off_longer_each_time(world: World) -> None:
    """The reason and the next try are in the comment."""
    world.run(7)
    world.slurm.live[7] = jobs.LiveJob(identity=fakes.identity(7, uid=UID), state="PENDING", partition="gpu")
    world.kube.add_pod(fakes.pod("big", cpus="8"))
    for _ in range(2):
        peer = await connect(world)
        peer.send("admit", "job", "7", "restart", "0", "uid", str(UID))
        assert (await peer.hear())[0] == b"no"
        await asyncio.gather(*world.server.later)
    assert world.slurm.delays == {7: 24}
    assert world.slurm.comments[7].endswith("held by default/big (refused 2 times, next try in 24 s)")


async def test_a_refusal_comes_in_a_later_second_than_its_question(world: World) -> None:
    """Slurm 24.11 would have two records of the job from one second, and show the wrong one."""
    world.run(7)
    world.kube.add_pod(fakes.pod("big", cpus="8"))
    begun = world.clock.now()
    world.server.wall_clock = lambda: 1_700_000_000.25 + world.clock.now() - begun
    peer = await connect(world)
    peer.send("admit", "job", "7", "restart", "0", "uid", str(UID))
    assert (await peer.hear())[0] == b"no"
    assert world.clock.now() - begun == pytest.approx(0.75 + server.CLOCK_SLACK)
    await asyncio.gather(*world.server.later)


async def test_nothing_is_promised_before_recovery(world: World) -> None:
    """A penstockd that does not know yet what is running asks for patience."""
    world.recovered.clear()
    peer = await connect(world)
    peer.send("admit", "job", "7", "restart", "0", "uid", str(UID))
    assert await peer.hear() == [b"wait"]


@pytest.mark.parametrize("question", [("admit", "job", "x"), ("nonsense",), ("admit", "job")])
async def test_nonsense_is_answered_with_an_error(world: World, question: tuple[str, ...]) -> None:
    """And the server goes on."""
    peer = await connect(world)
    peer.send(*question)
    assert (await peer.hear())[0] == b"error"


async def test_hooks_questions_are_for_hooks(world: World) -> None:
    """An ordinary user cannot release or admit anything."""
    world.server.hook_uids = frozenset({UID + 1})
    peer = await connect(world)
    peer.send("release", "job", "7", "node", "n1")
    assert (await peer.hear())[0] == b"error"
