"""Processes are known by pid and start time, found by what they hold, and ended for good."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_lab import processes

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing for a minute."""
    with subprocess.Popen(["sleep", "60"]) as child:
        yield child
        child.kill()


def python(program: str) -> subprocess.Popen[bytes]:
    """A Python program that has said that it is ready."""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def identity(pid: int) -> processes.Identity:
    found = processes.identify(pid)
    assert found is not None
    return found


class TestIdentity:
    def test_identity_is_stable(self, sleeper: subprocess.Popen[bytes]) -> None:
        """The same process always has the same identity."""
        first = identity(sleeper.pid)
        assert processes.identify(sleeper.pid) == first
        assert processes.alive(first)

    def test_start_time_distinguishes_reused_pids(self, sleeper: subprocess.Popen[bytes]) -> None:
        """A reused pid is never taken for ours, nor signalled."""
        stranger = processes.Identity(sleeper.pid, identity(sleeper.pid).start_ticks - 1)
        assert not processes.alive(stranger)
        assert not processes.send(stranger, signal.SIGKILL)
        assert sleeper.poll() is None

    def test_a_zombie_is_dead(self) -> None:
        """Nobody has collected it yet, but it does not run."""
        child = subprocess.Popen(["true"])
        deadline = time.monotonic() + 60
        while processes.identify(child.pid) is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert processes.identify(child.pid) is None
        child.wait()

    def test_unknown_pid_has_no_identity(self) -> None:
        """Signals to it have no effect."""
        nobody = processes.Identity(2**22 + 1, 1)
        assert not processes.alive(nobody)
        assert not processes.send(nobody, signal.SIGKILL)
        assert processes.memory_bytes(nobody) == 0

    def test_memory_is_what_the_kernel_says(self) -> None:
        """This interpreter takes more than a megabyte and less than a few hundred."""
        assert 2**20 < processes.memory_bytes(identity(os.getpid())) < 2**30


class TestSnapshot:
    def test_it_shows_name_arguments_owner_and_parent(self, sleeper: subprocess.Popen[bytes]) -> None:
        """What is needed to recognise a process is there."""
        found = {process.pid: process for process in processes.snapshot()}[sleeper.pid]
        assert (found.argv, found.parent, found.uid) == (("sleep", "60"), os.getpid(), os.getuid())

    def test_names_with_blanks_and_brackets_do_not_confuse_it(self, tmp_path: Path) -> None:
        """The name stands in brackets in /proc/PID/stat, whatever is in it."""
        odd = tmp_path / "a) b (c"
        odd.symlink_to("/bin/sleep")
        with subprocess.Popen([str(odd), "60"]) as child:
            try:
                found = {process.pid: process for process in processes.snapshot()}[child.pid]
                assert found.parent == os.getpid()
            finally:
                child.kill()

    def test_process_name_may_be_invalid_utf_8(self, tmp_path: Path) -> None:
        """The kernel cuts names after 15 bytes, also in the middle of a character."""
        odd = tmp_path / "fourteen-bytesä"
        odd.symlink_to("/bin/sleep")
        with subprocess.Popen([str(odd), "60"]) as child:
            try:
                found = {process.pid: process for process in processes.snapshot()}[child.pid]
                assert found.name.startswith("fourteen-bytes")
                assert processes.memory_bytes(found.identity) > 0
            finally:
                child.kill()

    def test_descendants_are_found_at_every_depth(self) -> None:
        """Children of children count, the root itself does not."""
        tree = [
            processes.Process(processes.Identity(pid, 1), parent, "x", 0, ())
            for pid, parent in ((2, 1), (3, 2), (4, 3), (5, 1), (6, 5))
        ]
        assert {process.pid for process in processes.descendants([2], tree)} == {3, 4}
        assert processes.descendants([4, 6], tree) == []

    def test_a_loop_in_the_table_does_not_hang(self) -> None:
        """A table read while pids are used again may be inconsistent."""
        tree = [processes.Process(processes.Identity(pid, 1), 5 - pid, "x", 0, ()) for pid in (2, 3)]
        assert {process.pid for process in processes.descendants([2], tree)} == {2, 3}


class TestHolding:
    def test_an_open_file_below_the_directory_counts(self, tmp_path: Path) -> None:
        """A daemon is recognised by its log."""
        with (tmp_path / "log").open("w") as log, subprocess.Popen(["sleep", "60"], stdout=log) as child:
            try:
                assert processes.holds(child.pid, tmp_path.resolve())
            finally:
                child.kill()

    def test_the_working_directory_counts(self, tmp_path: Path) -> None:
        """A step that works in the lab belongs to it."""
        with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as child:
            try:
                assert processes.holds(child.pid, tmp_path.resolve())
                assert not processes.holds(child.pid, tmp_path.resolve() / "deeper")
            finally:
                child.kill()

    def test_a_directory_whose_name_merely_begins_alike_does_not(self, tmp_path: Path) -> None:
        """/lab is not /lab2."""
        (tmp_path / "lab2").mkdir()
        with subprocess.Popen(["sleep", "60"], cwd=tmp_path / "lab2") as child:
            try:
                assert not processes.holds(child.pid, tmp_path.resolve() / "lab")
            finally:
                child.kill()

    def test_the_environment_does_not(self, tmp_path: Path) -> None:
        """An editor started from a shell of the lab is none of our business."""
        with subprocess.Popen(["sleep", "60"], env={"SLURM_CONF": str(tmp_path)}, cwd="/") as child:
            try:
                assert not processes.holds(child.pid, tmp_path.resolve())
            finally:
                child.kill()


class TestEnding:
    def test_sigterm_ends_a_process(self, sleeper: subprocess.Popen[bytes]) -> None:
        """SIGKILL is not needed."""
        assert processes.end([identity(sleeper.pid)], grace=5) == []
        assert sleeper.wait() == -signal.SIGTERM

    def test_sigkill_after_grace_period(self) -> None:
        """A process that ignores SIGTERM gets SIGKILL."""
        child = python(STUBBORN)
        assert processes.end([identity(child.pid)], grace=0.2) == []
        assert child.wait() == -signal.SIGKILL
        assert child.stdout is not None
        child.stdout.close()

    def test_ended_process_is_no_error(self) -> None:
        """Only the result counts."""
        child = subprocess.Popen(["sleep", "60"])
        gone = identity(child.pid)
        child.kill()
        child.wait()
        assert processes.end([gone], grace=1) == []

    def test_wait_returns_remaining_processes(self, sleeper: subprocess.Popen[bytes]) -> None:
        """The timeout is over, the process is not."""
        me = identity(sleeper.pid)
        assert processes.wait_gone([me], seconds=0.1) == [me]
