"""A check from look to verdict: when it waits, when it knows, and what it says of what changes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import errors
from penstock.audit import checkruns, collect, confirmed, invariants, reports, snapshots
from penstock.hooks import wire
from penstock.kube import kinds, lists, types
from penstock.model import audits
from tests.unit import fakes
from tests.unit import test_audit as planting

Sight = snapshots.Snapshot | Exception
SOUND = planting.world()
CROWDED = planting.world(planting.job(), pods=(planting.pod(), fakes.pod(cpus="7")))
ORPHAN = planting.world(secrets=(planting.secret(),))
AWAY = errors.KubeUnavailable("the Kubernetes API does not answer")


class Sights:
    """Looks at one prepared world after the other; the last one stays."""

    def __init__(self, *worlds: Sight) -> None:
        self._worlds = list(worlds)
        self.looks = 0
        self.clock = fakes.ManualClock()

    async def look(self) -> snapshots.Snapshot:
        self.looks += 1
        seen = self._worlds.pop(0) if len(self._worlds) > 1 else self._worlds[0]
        if isinstance(seen, Exception):
            raise seen
        return seen

    def checker(self, patience: float = 60.0) -> checkruns.Checker:
        limits = {**confirmed.PATIENCE, "I2": patience}
        return checkruns.Checker(self.look, self.clock, confirmed.Confirmer(limits))


async def test_a_sound_world_needs_one_look() -> None:
    """Nothing is waited for."""
    sights = Sights(SOUND)
    assert await sights.checker().once() == checkruns.Report()
    assert (sights.looks, sights.clock.time) == (1, 1000.0)


async def test_a_double_booking_needs_two() -> None:
    """The second look proves it."""
    sights = Sights(CROWDED)
    report = await sights.checker().once()
    assert [one.kind for one in report.violations] == ["crowded"]
    assert sights.looks == 2


async def test_what_was_only_the_delay_between_two_readings_is_not_said() -> None:
    """Gone at the second look."""
    sights = Sights(CROWDED, SOUND)
    assert await sights.checker().once() == checkruns.Report()


async def test_an_orphan_is_waited_for() -> None:
    """As long as penstockd may need to remove it, and it counts when it is still there."""
    sights = Sights(ORPHAN)
    report = await sights.checker(30.0).once()
    assert [one.kind for one in report.violations] == ["orphan-secret"]
    assert sights.clock.time >= 1030


async def test_a_side_that_is_away_is_not_clean() -> None:
    """Neither an API nor a penstockd that does not answer."""
    assert (await Sights(AWAY).checker().once()).unknown == AWAY.message
    assert (await Sights(planting.world(told=None)).checker().once()).unknown == checkruns.NO_DAEMON


async def test_what_was_proven_stays_so_while_nobody_can_know() -> None:
    """A side that goes away does not heal anything."""
    checker = Sights(CROWDED, CROWDED, AWAY).checker()
    await checker.once()
    report = await checker.look()
    assert report.unknown
    assert [one.kind for one in report.violations] == ["crowded"]


async def test_watching_tells_what_appears_and_what_goes() -> None:
    """Once each."""
    checker = Sights(SOUND, CROWDED, CROWDED, CROWDED, SOUND).checker()
    told = checker.forever(interval=5.0)
    assert isinstance(told, AsyncIterator)
    changes = [await anext(told) for _ in range(5)]
    assert [[one.kind for one in change.appeared] for change in changes] == [[], [], ["crowded"], [], []]
    assert [[one.kind for one in change.gone] for change in changes] == [[], [], [], [], ["crowded"]]


def test_metrics_say_zero_too() -> None:
    """A series that is missing would be an alert that never fires."""
    (one,) = invariants.judge(CROWDED)
    text = reports.as_metrics([one], known=True, at=1234.5)
    assert 'penstock_invariant_violations{invariant="I1"} 1\n' in text
    assert 'penstock_invariant_violations{invariant="I2"} 0\n' in text
    assert "penstock_check_known 1\n" in text


@pytest.mark.parametrize(
    "answer",
    [b'{"metadata":{},"items":[{"metadata":{"na', b"<html>ok</html>", b'{"kind":"Status"}', b'"\xff"'],
)
async def test_a_list_that_cannot_be_read_is_no_list(answer: bytes) -> None:
    """Cut off, of a proxy, of another shape, no text: the watch goes on, and nothing is known meanwhile."""

    class Source:
        async def list(self, kind: kinds.Kind, **_: Any) -> bytes:
            return answer

    async def look() -> snapshots.Snapshot:
        await lists.everything(Source(), kinds.PODS, types.Pod)
        return SOUND

    told = checkruns.Checker(look, fakes.ManualClock()).forever(interval=5.0)
    assert "cannot be read" in (await anext(told)).report.unknown


async def test_a_watch_under_way_is_not_ended_by_a_refusal() -> None:
    """A wrong call is wrong at its first look; later nothing is known, and that is what the metrics say."""
    refusal = errors.UsageError("penstockd refuses the audit")
    with pytest.raises(errors.UsageError):
        await Sights(refusal).checker().look()
    told = Sights(SOUND, refusal, SOUND).checker().forever(interval=5.0)
    assert [(await anext(told)).report.unknown for _ in range(3)] == ["", refusal.message, ""]


@contextlib.contextmanager
def daemon(path: Path, answer: bytes) -> Iterator[str]:
    """Something that answers one question with that."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            peer = listening.accept()[0]
            wire.receive(peer)
            peer.sendall(answer)
            peer.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield str(path)
        thread.join(10)


def test_penstockds_view_is_read(tmp_path: Path) -> None:
    """As it sends it."""
    view = audits.DaemonView(bridged_partitions=("gpu",), held=(planting.held(),))
    with daemon(tmp_path / "s", wire.pack("audit", msgspec.json.encode(view))) as path:
        assert collect.ask_daemon(path) == view


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        wire.pack("wait"),
        b"\0\0",
        wire.pack("audit"),
        wire.pack("error"),
        wire.pack("audit", b'{"held": [{'),
        wire.pack("audit", b'{"held": 7}'),
        wire.pack("audit", b'{"bridged_partitions": ["\xff"]}'),
    ],
)
def test_a_penstockd_that_does_not_tell_is_away(tmp_path: Path, answer: bytes) -> None:
    """No answer, half an answer, "not now", or what cannot be read."""
    with daemon(tmp_path / "s", answer) as path:
        assert collect.ask_daemon(path) is None
    assert collect.ask_daemon(str(tmp_path / "nowhere")) is None


def test_who_may_not_know_is_told_so(tmp_path: Path) -> None:
    """With a hint."""
    with (
        daemon(tmp_path / "s", wire.pack("error", "not for uid 7")) as path,
        pytest.raises(errors.UsageError, match="uid 7") as refused,
    ):
        collect.ask_daemon(path)
    assert "root" in refused.value.hint
