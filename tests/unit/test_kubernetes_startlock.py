"""Whose lab starts next, where all of them together would use up the kernel's inotify instances."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from penstock_lab.kubernetes import inotify, startlock


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """One that allows 128; what is used a test can change."""
    (tmp_path / "limit").write_text("128\n")
    counted = {"used": 0}
    monkeypatch.setattr(inotify, "LIMIT", tmp_path / "limit")
    monkeypatch.setattr(inotify, "used", lambda: counted["used"])
    monkeypatch.setattr(startlock, "POLL_SECONDS", 0.01)
    return counted


def test_lab_waits_for_inotify_instances(machine: dict[str, int], tmp_path: Path) -> None:
    """Until another lab is gone."""
    machine["used"] = 111
    began = threading.Event()

    def start() -> None:
        with startlock.turn(tmp_path / "cache" / "lock", 2):
            began.set()

    thread = threading.Thread(target=start)
    thread.start()
    assert not began.wait(0.2)
    machine["used"] = 128 - inotify.needed(2)
    assert began.wait(60)
    thread.join()


def test_concurrent_labs_do_not_use_the_same_room(machine: dict[str, int], tmp_path: Path) -> None:
    """There is room for one: the second checks once the first has started."""
    machine["used"] = 128 - inotify.needed(1)
    order: list[str] = []

    def start() -> None:
        with startlock.turn(tmp_path / "lock", 1):
            order.append("second")

    with startlock.turn(tmp_path / "lock", 1):
        thread = threading.Thread(target=start)
        thread.start()
        time.sleep(0.1)
        order.append("first")
        machine["used"] = 128
    time.sleep(0.1)
    assert order == ["first"]
    machine["used"] = 0
    thread.join(60)
    assert order == ["first", "second"]


def test_wait_times_out(machine: dict[str, int], tmp_path: Path) -> None:
    """Then the lab is started, and reports what is missing."""
    machine["used"] = 128
    began = time.monotonic()
    with startlock.turn(tmp_path / "lock", 1, patience=0.3):
        assert 0.3 <= time.monotonic() - began < 30
        assert inotify.used() == 128
