"""What the tests of the lab share: a sleep nobody else sleeps, and looks at what a lab has or leaves."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from penstock_lab import paths, processes, state, supervision, testing

LONG = str(10_000_000 + os.getpid())
"""Seconds of a sleep that nobody else on this machine sleeps."""
SLEEP = f"#!/bin/sh\nsleep {LONG}\n"
STORMY = pytest.StashKey[testing.RunningLab]()
"""The lab behind the fault proxy that this process has, if it has one."""
RUNNING = pytest.StashKey[list[testing.RunningLab]]()
"""The labs that this process keeps for all its tests."""
GUEST = "games"
"""A user that every Debian has and nobody works as."""


def pids(place: paths.LabPaths) -> dict[str, int | None]:
    return {part.name: part.pid for part in state.look(place).components}


def kill(place: paths.LabPaths, name: str) -> None:
    record = supervision.read_record(place, name)
    assert record is not None
    processes.send(record.identity, signal.SIGKILL)
    assert processes.wait_gone([record.identity], seconds=60) == []


def left_behind(place: paths.LabPaths) -> list[str]:
    """Every process that has to do with the lab, by its arguments or by what it holds open."""
    text = str(place.directory)
    return [
        " ".join(process.argv)
        for process in processes.snapshot()
        if process.pid != os.getpid()
        and (any(text in word for word in process.argv) or processes.holds(process.pid, place.directory))
    ]


@contextlib.contextmanager
def kept_for_all(config: pytest.Config, *options: str) -> Iterator[testing.RunningLab]:
    """A lab that the tests of this process share until the end."""
    with testing.temporary_lab(*options) as running:
        config.stash.setdefault(RUNNING, []).append(running)
        yield running
        config.stash[RUNNING].remove(running)


def leave_no_pod(config: pytest.Config) -> None:
    """Whoever leaves one on the labs that all share takes room from the tests that come after it."""
    for running in config.stash.get(RUNNING, []):
        for last in testing.looks(60):
            listed = running.run(("kubectl", "get", "pods", "-A", "-o", "name")).stdout.split()
            if not listed:
                break
            assert not last, f"these pods were left: {listed}"
