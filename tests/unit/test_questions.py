"""What hooks ask on penstockd's socket, and the answers; Slurm and Kubernetes are played by fakes."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from penstock.bridge import admission
from penstock.model import jobs
from tests.unit import fakes
from tests.unit.test_sessions import UID, World, connect, world

__all__ = ["world"]  # pytest finds the fixture by its name


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
    world.slurm.queue[7] = fakes.job(7)
    world.kube.add_pod(fakes.pod("big", cpus="8"))
    for _ in range(2):
        peer = await connect(world)
        peer.send("admit", "job", "7", "restart", "0", "uid", str(UID))
        assert (await peer.hear())[0] == b"no"
        await asyncio.gather(*world.bridge.admission._followups.values())
    assert world.slurm.delays == {7: 24}
    again = "(refused 2 times, next try in 24 s) [penstock]"
    assert world.slurm.comments[7].endswith(f"held by default/big {again}")


async def ask_to_admit(world: World, *fields: str) -> list[bytes]:
    """penstockd's answer about job 1, when all that comes after it is done."""
    peer = await connect(world)
    peer.send("admit", "job", "1", "uid", str(UID), "restart", "0", *fields)
    heard = await peer.hear()
    await asyncio.gather(*world.bridge.admission._followups.values())
    return heard


async def test_a_job_whose_environment_is_armed_is_ended_in_words(world: World) -> None:
    """It would never start: the comment says why, and it is cancelled once Slurm has sent it back."""
    world.slurm.add(fakes.allocation(1), state="PENDING")
    word, reason = await ask_to_admit(world, "armed", "LD_PRELOAD", "armed", "LOCPATH")
    assert word == b"no"
    assert b"would run code on the Slurm node (LD_PRELOAD, LOCPATH)" in reason
    assert world.slurm.comments == {1: reason.decode()}
    assert world.slurm.cancelled == [1]
    assert world.bridge.context.store.reservation(1) is None


async def test_a_job_whose_environment_cannot_be_read_waits(world: World) -> None:
    """Nobody knows whether it is armed: it is not lost, and not started."""
    world.slurm.add(fakes.allocation(1), state="PENDING")
    word, reason = await ask_to_admit(world, "unread", "/s/environment: Permission denied")
    assert (word, world.slurm.cancelled) == (b"no", [])
    assert b"(/s/environment: Permission denied)" in reason


async def test_a_refusal_comes_in_a_later_second_than_its_question(world: World) -> None:
    """Slurm 24.11 would have two records of the job from one second, and show the wrong one."""
    world.run(7)
    world.slurm.live[7] = dataclasses.replace(world.slurm.live[7], state="PENDING")
    world.kube.add_pod(fakes.pod("big", cpus="8"))
    begun = world.clock.now()
    world.bridge.context.wall_clock = lambda: 1_700_000_000.25 + world.clock.now() - begun
    peer = await connect(world)
    peer.send("admit", "job", "7", "restart", "0", "uid", str(UID))
    assert (await peer.hear())[0] == b"no"
    assert world.clock.now() - begun == pytest.approx(0.75 + admission.CLOCK_SLACK)
    await asyncio.gather(*world.bridge.admission._followups.values())


async def test_a_wall_clock_set_back_meanwhile_puts_no_refusal_off(world: World) -> None:
    """The hook would give up, and the job wait for years."""
    world.run(7)
    world.slurm.live[7] = dataclasses.replace(world.slurm.live[7], state="PENDING")
    world.kube.add_pod(fakes.pod("big", cpus="8"))
    begun = world.clock.now()
    told = iter((1_700_000_000.25,))
    world.bridge.context.wall_clock = lambda: next(told, 1_000_000_000.0)
    peer = await connect(world)
    peer.send("admit", "job", "7", "restart", "0", "uid", str(UID))
    assert (await peer.hear())[0] == b"no"
    assert world.clock.now() - begun <= 1 + admission.CLOCK_SLACK
    await asyncio.gather(*world.bridge.admission._followups.values())


async def test_what_follows_a_refusal_ends_when_slurm_tries_the_job_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmctld was away while it should be told why the job waits; then the job runs, and waits no more."""
    world.run(7)
    world.kube.add_pod(fakes.pod("big", cpus="8"))
    back, said = asyncio.Event(), world.slurm.say_why_it_waits

    async def when_slurm_is_back(job_id: int, reason: str) -> None:
        await back.wait()
        await said(job_id, reason)

    monkeypatch.setattr(world.slurm, "say_why_it_waits", when_slurm_is_back)
    assert (await ask_again(world))[0] == b"no"
    del world.kube.objects["pods", "default", "big"]
    assert await ask_again(world) == [b"yes"]
    back.set()
    await asyncio.gather(*world.bridge.admission._followups.values())
    assert world.slurm.comments == {}


async def ask_again(world: World) -> list[bytes]:
    peer = await connect(world)
    peer.send("admit", "job", "7", "restart", "0", "uid", str(UID))
    return await peer.hear()


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
