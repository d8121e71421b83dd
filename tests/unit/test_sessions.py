"""Conversations on penstockd's socket, with a real socket and Slurm and Kubernetes played by fakes."""

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
from penstock.render import pods as rendering
from penstock.render import secrets
from tests.unit import fakes

UID = os.getuid()


class World:
    """A server on a socket, and both sides of it."""

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
        """A running job of ours."""
        allocation = fakes.allocation(job_id)
        identity = fakes.identity(job_id, uid=UID)
        self.slurm.add(jobs.Allocation(identity=identity, shares=allocation.shares, partition="gpu"))

    def allow(self, *prefixes: str, forbidden: str) -> None:
        """From now on these images, and not that directive."""
        self.bridge.context.settings = msgspec.structs.replace(
            self.bridge.context.settings, allowed_images=prefixes, forbidden_directives=(forbidden,)
        )

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
    async with served(tmp_path / "s") as made:
        yield made


@contextlib.asynccontextmanager
async def served(path: Path) -> AsyncIterator[World]:
    """A world whose socket is open."""
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


@pytest.mark.parametrize("ends", [True, False])
async def test_a_signal_waits_for_the_script_to_begin(world: World, ends: bool) -> None:
    """Its image may take long to come; a SIGTERM, which comes behind it, does not wait."""
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
async def test_signals_that_wait_keep_their_order(
    world: World, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    """The script hears them as they were sent, and the launcher strikes off its list what was delivered."""
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


async def test_a_script_that_ends_well_before_its_signal_is_answered_has_ended_well(world: World) -> None:
    """The container's end takes the `kill` in it along, so the pod is deleted to be sure."""
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


@pytest.mark.parametrize("script", [b"#!/x\n#K8S_COMMAND=@entrypoint\n", b"#!/x\ntrue\n"])
async def test_a_stream_that_hangs_is_said_to_be_incomplete(
    world: World, script: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its peer is gone without a word; half an output must not look like all of it."""

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


@pytest.mark.parametrize("line", [b"ENV=CITY=Z\xfcrich", b"WORKDIR=/nas/M\xfc", b"COMMAND=echo \xfc"])
async def test_a_value_that_is_no_utf8_fails_the_job_in_words(world: World, line: bytes) -> None:
    """Kubernetes could not take it: the job ends at once, with line and remedy, and nothing is made."""
    world.run(7)
    peer = await connect(world)
    launch(peer, 7, script=b"#!/x\n#K8S_" + line + b"\ntrue\n")
    verb, text = await peer.hear()
    assert verb == b"note"
    assert text.startswith(b"not started: line 2: #K8S_")
    assert text.endswith(b"byte 0xfc of the value is not UTF-8 (save the script as UTF-8)")
    assert await peer.hear() == [b"exit", b"1"]
    assert not world.kube.calls


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (b"#!/x\n#K8S_IMAGE=hub.example.evil/a\ntrue\n", b"image hub.example.evil/a is not allowed"),
        (b"#!/x\n#K8S_IMAGE=debian:12\ntrue\n", b"image docker.io/library/debian:12 is not allowed"),
        (b"#!/x\n#K8S_IMAGE=hub.example/a\n#K8S_MOUNT=/a\ntrue\n", b"line 3: #K8S_MOUNT is not allowed"),
    ],
)
async def test_what_the_site_forbids_fails_the_job_in_words(
    world: World, script: bytes, words: bytes
) -> None:
    """Whatever was checked at submission, penstockd itself makes no such pod."""
    world.allow("hub.example/", forbidden="MOUNT")
    world.run(7)
    peer = await connect(world)
    launch(peer, 7, script=script)
    assert words in (await peer.hear())[1]
    assert await peer.hear() == [b"exit", b"1"]
    assert not world.kube.calls


async def test_what_cannot_be_rendered_ends_the_job_and_leaves_no_pod(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launcher that heard of an error would ask again, with the same end."""

    def fails(*_: object, **__: object) -> rendering.Manifest:
        raise ValueError("no such letter")

    monkeypatch.setattr(secrets, "render_secret", fails)
    world.run(7)
    peer = await connect(world)
    launch(peer, 7)
    assert await peer.hear() == [b"note", b"not started: its objects cannot be created: no such letter"]
    assert await peer.hear() == [b"exit", b"1"]
    assert ("create", "pods") in [call[:2] for call in world.kube.calls]
    assert not world.kube.names("pods")


async def test_what_the_site_forbids_since_does_not_end_a_running_job(world: World) -> None:
    """penstockd was started anew with a shorter list while the job ran."""
    world.run(7)
    peer = await connect(world)
    script = b"#!/x\n#K8S_IMAGE=debian:12\n#K8S_SHM_SIZE=1G\ntrue\n"
    launch(peer, 7, script=script)
    assert await peer.hear() == [b"started"]
    world.allow("hub.example/", forbidden="SHM_SIZE")
    peer = await connect(world)
    launch(peer, 7, attach="1", script=script)
    assert await peer.hear() == [b"started"]
    world.end(fakes.ended(7))
    assert await peer.hear() == [b"exit", b"7"]


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
