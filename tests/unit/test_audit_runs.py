"""Runs of the check: when it looks again, when a finding is confirmed, and what it reports as changed."""

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
    """Returns prepared snapshots in turn; the last one is repeated."""

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


async def test_one_look_if_nothing_is_found() -> None:
    sights = Sights(SOUND)
    assert await sights.checker().once() == checkruns.Report()
    assert (sights.looks, sights.clock.time) == (1, 1000.0)


async def test_a_double_booking_needs_two_looks() -> None:
    sights = Sights(CROWDED)
    report = await sights.checker().once()
    assert [one.kind for one in report.violations] == ["crowded"]
    assert sights.looks == 2


async def test_a_finding_gone_at_the_second_look_is_dropped() -> None:
    sights = Sights(CROWDED, SOUND)
    assert await sights.checker().once() == checkruns.Report()


async def test_an_orphan_counts_after_its_patience() -> None:
    sights = Sights(ORPHAN)
    report = await sights.checker(30.0).once()
    assert [one.kind for one in report.violations] == ["orphan-secret"]
    assert sights.clock.time >= 1030


async def test_unknown_without_the_api_or_penstockd() -> None:
    assert (await Sights(AWAY).checker().once()).unknown == AWAY.message
    assert (await Sights(planting.world(told=None)).checker().once()).unknown == checkruns.NO_DAEMON


async def test_violations_stay_while_a_side_is_down() -> None:
    checker = Sights(CROWDED, CROWDED, AWAY).checker()
    await checker.once()
    report = await checker.look()
    assert report.unknown
    assert [one.kind for one in report.violations] == ["crowded"]


async def test_changes_are_reported_once() -> None:
    checker = Sights(SOUND, CROWDED, CROWDED, CROWDED, SOUND).checker()
    told = checker.forever(interval=5.0)
    assert isinstance(told, AsyncIterator)
    changes = [await anext(told) for _ in range(5)]
    assert [[one.kind for one in change.appeared] for change in changes] == [[], [], ["crowded"], [], []]
    assert [[one.kind for one in change.gone] for change in changes] == [[], [], [], [], ["crowded"]]


def test_metrics_include_zeros() -> None:
    """An alert on a missing series never fires."""
    (one,) = invariants.judge(CROWDED)
    text = reports.as_metrics([one], known=True, at=1234.5)
    assert 'penstock_invariant_violations{invariant="I1"} 1\n' in text
    assert 'penstock_invariant_violations{invariant="I2"} 0\n' in text
    assert "penstock_check_known 1\n" in text


@pytest.mark.parametrize(
    "answer",
    [b'{"metadata":{},"items":[{"metadata":{"na', b"<html>ok</html>", b'{"kind":"Status"}', b'"\xff"'],
)
async def test_an_unreadable_list_means_unknown(answer: bytes) -> None:
    """Truncated, from a proxy, of another shape, not text: the watch goes on."""

    class Source:
        async def list(self, kind: kinds.Kind, **_: Any) -> bytes:
            return answer

    async def look() -> snapshots.Snapshot:
        await lists.everything(Source(), kinds.PODS, types.Pod)
        return SOUND

    told = checkruns.Checker(look, fakes.ManualClock()).forever(interval=5.0)
    assert "unreadable answer" in (await anext(told)).report.unknown


async def test_usage_errors_end_only_the_first_look() -> None:
    """Later the result is unknown."""
    refusal = errors.UsageError("penstockd refuses the audit")
    with pytest.raises(errors.UsageError):
        await Sights(refusal).checker().look()
    told = Sights(SOUND, refusal, SOUND).checker().forever(interval=5.0)
    assert [(await anext(told)).report.unknown for _ in range(3)] == ["", refusal.message, ""]


@contextlib.contextmanager
def daemon(path: Path, answer: bytes) -> Iterator[str]:
    """Answers one request with this."""
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
def test_an_invalid_answer_counts_as_none(tmp_path: Path, answer: bytes) -> None:
    """No answer, half an answer, "wait", or unreadable."""
    with daemon(tmp_path / "s", answer) as path:
        assert collect.ask_daemon(path) is None
    assert collect.ask_daemon(str(tmp_path / "nowhere")) is None


def test_a_refused_audit_has_a_hint(tmp_path: Path) -> None:
    with (
        daemon(tmp_path / "s", wire.pack("error", "not for uid 7")) as path,
        pytest.raises(errors.UsageError, match="uid 7") as refused,
    ):
        collect.ask_daemon(path)
    assert "root" in refused.value.hint
