"""Shared by the tests of the lab: a recognisable sleep, and the processes and files of a lab."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from penstock_lab import paths, processes, state, supervision, testing

LONG = str(10_000_000 + os.getpid())
"""A duration that identifies our sleep processes on this machine."""
SLEEP = f"#!/bin/sh\nsleep {LONG}\n"
STORMY = pytest.StashKey[testing.RunningLab]()
"""This process's lab with the fault proxy, if any."""
RUNNING = pytest.StashKey[list[testing.RunningLab]]()
"""This process's shared labs."""
GUEST = "games"
"""A system user of every Debian."""


def pids(place: paths.LabPaths) -> dict[str, int | None]:
    return {part.name: part.pid for part in state.look(place).components}


def kill(place: paths.LabPaths, name: str) -> None:
    record = supervision.read_record(place, name)
    assert record is not None
    processes.send(record.identity, signal.SIGKILL)
    assert processes.wait_gone([record.identity], seconds=60) == []


def left_behind(place: paths.LabPaths) -> list[str]:
    """The lab's processes, by arguments or open files."""
    text = str(place.directory)
    return [
        " ".join(process.argv)
        for process in processes.snapshot()
        if process.pid != os.getpid()
        and (any(text in word for word in process.argv) or processes.holds(process.pid, place.directory))
    ]


@contextlib.contextmanager
def kept_for_all(config: pytest.Config, *options: str) -> Iterator[testing.RunningLab]:
    """A lab shared by the tests of this process."""
    with testing.temporary_lab(*options) as running:
        config.stash.setdefault(RUNNING, []).append(running)
        yield running
        config.stash[RUNNING].remove(running)


def leave_no_pod(config: pytest.Config) -> None:
    """Pods left on shared labs take room from later tests."""
    for running in config.stash.get(RUNNING, []):
        for last in testing.looks(60):
            listed = running.run(("kubectl", "get", "pods", "-A", "-o", "name")).stdout.split()
            if not listed:
                break
            assert not last, f"these pods were left: {listed}"
