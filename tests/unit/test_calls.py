"""penstockd between a pod that calls Slurm's commands and the launcher that runs them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock import errors
from penstock.bridge import calls, podstream, protocols
from penstock.bridge.launch import Launch
from penstock.calls import outcomes
from penstock.kube import kinds, podview, reflectors, types
from tests.unit import fakes

KEY = "17-4"
SCRIPT = b"#!/x\nsqueue\n"


class Launcher:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()

    async def run(self, key: str, command: outcomes.Run) -> None:
        self.asked.put_nowait(("run", key, command))

    async def confirm(self, key: str, stream: int, offset: int) -> None:
        self.asked.put_nowait(("confirm", key, stream, offset))

    async def again(self, key: str) -> None:
        self.asked.put_nowait(("again", key))

    async def kill(self, key: str, number: int) -> None:
        self.asked.put_nowait(("kill", key, number))

    async def forget(self, key: str) -> None:
        self.asked.put_nowait(("forget", key))


class World:
    """One job's calls, its pod played by the test."""

    def __init__(self, *, known: frozenset[str] = frozenset(), relays: bool = True) -> None:
        self.kube, self.launcher = fakes.FakeKube(), Launcher()
        time = fakes.ManualClock()
        pods = reflectors.Reflector(self.kube, kinds.PODS, types.Pod, indexes=podview.INDEXES, time=time)
        nodes = reflectors.Reflector(self.kube, kinds.NODES, types.Node, time=time)
        bridge = fakes.bridge(slurm=fakes.FakeSlurm(), kube=self.kube, pods=pods, nodes=nodes, time=time)
        bridge.context.settings = fakes.policy("gpu")
        pod = fakes.pod("slurm-job-17", job=fakes.identity(17), status=fakes.running())
        pods.put(pod)
        request = dataclasses.replace(fakes.REQUEST, script=SCRIPT, relays=relays)
        launch = Launch(self.launcher, fakes.allocation(17), request, gang=(pod,))  # type: ignore[arg-type]  # the part that is used
        self.calls = calls.Calls(bridge.context, bridge.follower, launch, known)

    def says(self, *words: str, body: bytes = b"") -> None:
        """A frame of the pod."""
        self.kube.conversation.says.put_nowait(" ".join((*words, str(len(body)))).encode() + b"\n" + body)

    def calls_for(self, *words: str, key: str = KEY) -> None:
        fields = ["/nas", str(len(words)), *words, "A=1"]
        self.says("call", key, body=b"0022\n" + b"".join(field.encode() + b"\0" for field in fields))

    async def heard(self) -> tuple[list[str], bytes]:
        """The next frame that the pod got."""
        frame = await asyncio.wait_for(self.kube.conversation.heard.get(), 60)
        line, _, body = frame.partition(b"\n")
        return line.decode().split()[:-1], body

    async def asked(self) -> tuple[Any, ...]:
        """The next message that the launcher got."""
        return await asyncio.wait_for(self.launcher.asked.get(), 60)

    def breaks(self) -> None:
        self.kube.conversation.says.put_nowait(errors.KubeUnavailable("gone"))


@contextlib.asynccontextmanager
async def serving(**how: Any) -> AsyncIterator[World]:
    world = World(**how)
    task = asyncio.create_task(world.calls.serve())
    world.says("hello", "1")
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_call_from_the_pod_to_its_end() -> None:
    """Planned, run by the launcher, printed in the pod, confirmed, forgotten."""
    async with serving() as world:
        world.says("ready")
        world.calls_for("squeue", "-h")
        verb, key, run = await world.asked()
        assert (verb, key, run.program, run.words) == ("run", KEY, "squeue", (b"-h",))
        world.calls.printed(protocols.Printed(KEY, 1, 0, b"out"))
        assert await world.heard() == (["print", KEY, "1", "0"], b"out")
        world.says("took", KEY, "1", "3")
        assert await world.asked() == ("confirm", KEY, 1, 3)
        world.calls.ended(protocols.Ended(KEY, "exit", 7))
        assert await world.heard() == (["end", KEY, "exit", "7"], b"")
        world.says("done", KEY)
        assert await world.asked() == ("forget", KEY)


async def test_refused_call_is_answered_without_the_launcher() -> None:
    async with serving() as world:
        world.calls_for("scontrol", "shutdown")
        words, body = await world.heard()
        assert words == ["print", KEY, "2", "0"]
        assert body.startswith(b"scontrol: error: penstock: shutdown")
        assert await world.heard() == (["end", KEY, "exit", "1"], b"")
        assert world.launcher.asked.empty()


async def test_launcher_of_an_older_release() -> None:
    """It would never answer."""
    async with serving(relays=False) as world:
        world.calls_for("squeue")
        assert calls.OLD_LAUNCHER.encode() in (await world.heard())[1]


async def test_broken_connection() -> None:
    """The pod names its calls again: their output is repeated, and calls that it does not name are over."""
    async with serving() as world:
        world.says("ready")
        world.calls_for("squeue")
        world.calls_for("sinfo", key="1-1")
        world.calls_for("salloc", key="2-2")
        assert {(await world.asked())[1] for _ in range(2)} == {KEY, "1-1"}
        said = [await world.heard(), await world.heard()]
        world.breaks()
        world.says("hello", "1")
        world.calls_for("squeue")
        world.calls_for("salloc", key="2-2")
        world.says("ready")
        assert await world.asked() == ("again", KEY)
        assert [await world.heard(), await world.heard()] == said
        assert await world.asked() == ("forget", "1-1")


async def test_new_penstockd_finds_running_commands() -> None:
    """It asks for none again that the launcher has, and has those killed for which nobody waits."""
    async with serving(known=frozenset({KEY, "9-9"})) as world:
        world.calls_for("squeue")
        world.says("ready")
        assert await world.asked() == ("again", KEY)
        assert await world.asked() == ("forget", "9-9")


async def test_file_of_the_pod_is_brought_for_the_plan() -> None:
    """The script of sbatch; asked for again after a broken connection."""
    async with serving() as world:
        world.calls_for("sbatch", "job.sh")
        assert await world.heard() == (["open", KEY, "0"], b"job.sh")
        world.breaks()
        world.says("hello", "1")
        world.calls_for("sbatch", "job.sh")
        assert await world.heard() == (["open", KEY, "0"], b"job.sh")
        world.says("file", KEY, "0", body=SCRIPT)
        run = (await world.asked())[2]
        assert run.script == (b"job.sh", SCRIPT)


async def test_standard_input_is_collected_for_the_plan() -> None:
    """In order, each piece once, and only up to a limit."""
    async with serving() as world:
        world.calls_for("sbatch")
        assert await world.heard() == (["feed", KEY], b"")
        for offset, piece in ((0, SCRIPT[:5]), (0, SCRIPT[:5]), (9, b"too early"), (5, SCRIPT[5:])):
            world.says("in", KEY, str(offset), body=piece)
        world.says("eof", KEY, str(len(SCRIPT)))
        assert [(await world.heard())[0] for _ in range(3)] == [
            ["taken", KEY, "0"],
            ["taken", KEY, "0"],
            ["taken", KEY, "5"],
        ]
        assert (await world.asked())[2].script == (b"sbatch", SCRIPT)


async def test_too_much_input_is_refused() -> None:
    """A pod cannot fill penstockd's memory."""
    async with serving() as world:
        world.calls_for("sbatch")
        await world.heard()
        piece = b"x" * 1_000_000
        for number in range(5):
            world.says("in", KEY, str(number * len(piece)), body=piece)
        heard = [await world.heard() for _ in range(6)]
        assert heard[-1] == (["end", KEY, "exit", "1"], b"")


async def test_too_many_calls_wait_in_the_pod() -> None:
    """And are asked for when another one is over."""
    async with serving() as world:
        for number in range(calls.MOST_CALLS + 2):
            world.calls_for("squeue", key=f"1-{number}")
        keys = [(await world.asked())[1] for _ in range(calls.MOST_CALLS)]
        assert world.launcher.asked.empty()
        world.says("done", keys[0])
        assert await world.heard() == (["again", f"1-{calls.MOST_CALLS}"], b"")


@pytest.mark.parametrize(
    "garbage",
    [
        b"not a frame\n",
        b"call 17-4 99999999999\n",
        b"call\n",
        b"call ../x 0\n",
        b"took 17-4 x y 0\n",
        b"took 0\n",
        b"x" * 5000,
        b"\xff\xfe\n",
        b"in 17-4 -1 0\n",
        b"signal 17-4 KILL9 0\n",
        b"call 17-4 3\nabc",
    ],
)
async def test_garbage_of_a_pod_does_no_harm(garbage: bytes) -> None:
    """A job's processes may write anything there: it is a new connection at worst."""
    async with serving() as world:
        world.calls_for("squeue")
        await world.asked()
        world.kube.conversation.says.put_nowait(garbage)
        world.breaks()
        world.says("hello", "1")
        world.calls_for("squeue")
        assert await world.asked() == ("again", KEY)


async def test_signals_reach_the_command() -> None:
    async with serving() as world:
        world.calls_for("squeue")
        await world.asked()
        world.says("signal", KEY, "TERM")
        assert await world.asked() == ("kill", KEY, 15)
        world.says("gone", KEY)
        assert await world.asked() == ("forget", KEY)


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_frames_in_any_pieces(size: int) -> None:
    """However the API cuts the stream."""
    body = bytes(range(256)) * 100
    data = b"a 17-4 25600\n" + body + b"b 0\n" + b"c d 0\n"
    received, found = bytearray(), []
    for start in range(0, len(data), size):
        received += data[start : start + size]
        found += podstream.whole(received)
    assert found == [
        podstream.Frame(("a", "17-4"), body),
        podstream.Frame(("b",)),
        podstream.Frame(("c", "d")),
    ]
