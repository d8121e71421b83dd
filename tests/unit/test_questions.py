"""Hooks' requests on penstockd's socket and the answers, with fakes of Slurm and Kubernetes."""

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
    """Admission, refusal, release, and a drain after a timeout."""
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


async def test_repeated_refusals_delay_a_job_longer(world: World) -> None:
    """The comment has the reason and the next try."""
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
    """penstockd's answer for job 1, after its follow-up is done."""
    peer = await connect(world)
    peer.send("admit", "job", "1", "uid", str(UID), "restart", "0", *fields)
    heard = await peer.hear()
    await asyncio.gather(*world.bridge.admission._followups.values())
    return heard


async def test_a_job_with_an_unsafe_environment_is_cancelled(world: World) -> None:
    """With the reason as comment, once Slurm has requeued it."""
    world.slurm.add(fakes.allocation(1), state="PENDING")
    word, reason = await ask_to_admit(world, "armed", "LD_PRELOAD", "armed", "LOCPATH")
    assert word == b"no"
    assert b"would run code on the Slurm node (LD_PRELOAD, LOCPATH)" in reason
    assert world.slurm.comments == {1: reason.decode()}
    assert world.slurm.cancelled == [1]
    assert world.bridge.context.store.reservation(1) is None


async def test_a_job_with_an_unreadable_environment_waits(world: World) -> None:
    world.slurm.add(fakes.allocation(1), state="PENDING")
    word, reason = await ask_to_admit(world, "unread", "/s/environment: Permission denied")
    assert (word, world.slurm.cancelled) == (b"no", [])
    assert b"(/s/environment: Permission denied)" in reason


async def test_a_refusal_waits_for_the_next_second(world: World) -> None:
    """Slurm 24.11 would have two records of the job with the same second, and show the wrong one."""
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


async def test_a_wall_clock_set_back_does_not_delay_a_refusal(world: World) -> None:
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


async def test_the_next_admission_cancels_a_follow_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmctld was down and did not get the comment; it must not be set on a running job."""
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


async def test_hooks_wait_for_recovery(world: World) -> None:
    world.recovered.clear()
    peer = await connect(world)
    peer.send("admit", "job", "7", "restart", "0", "uid", str(UID))
    assert await peer.hear() == [b"wait"]


@pytest.mark.parametrize("question", [("admit", "job", "x"), ("nonsense",), ("admit", "job")])
async def test_a_protocol_error_is_answered_with_an_error(world: World, question: tuple[str, ...]) -> None:
    """The server goes on."""
    peer = await connect(world)
    peer.send(*question)
    assert (await peer.hear())[0] == b"error"


async def test_hook_requests_need_a_hook_uid(world: World) -> None:
    """Ordinary users cannot admit or release."""
    world.server.hook_uids = frozenset({UID + 1})
    peer = await connect(world)
    peer.send("release", "job", "7", "node", "n1")
    assert (await peer.hear())[0] == b"error"
