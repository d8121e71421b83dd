"""Whoever is told to stop does so once, and cleans up to the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import sys, time
from penstock_lab import interrupts
interrupts.heed()
try:
    print("ready", flush=True)
    time.sleep({working})
except BaseException:
    with interrupts.put_off():
        print("cleaning", flush=True)
        sys.stdin.readline()
        print("clean", flush=True)
    sys.exit(7)
print("done", flush=True)
"""


def started(*before: str, working: float = 60) -> subprocess.Popen[str]:
    """A program that does something for a while, and is there."""
    argv = [*before, sys.executable, "-c", PROGRAM.format(working=working)]
    pipe = subprocess.PIPE
    child = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_second_signal_does_not_stop_the_cleanup(number: signal.Signals) -> None:
    """Impatient people press Ctrl-C twice; half of a lab would stay behind."""
    with started() as child:
        child.send_signal(number)
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "cleaning\n"
        for again in (number, signal.SIGINT):
            child.send_signal(again)
            assert "please wait" in child.stderr.readline()
        said, _ = child.communicate("go on\n", timeout=30)
    assert (child.returncode, said) == (7, "clean\n")


def test_closed_terminal_does_not_stop_the_cleanup() -> None:
    """The message cannot be written any more."""
    with started() as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stderr.close()
        child.send_signal(signal.SIGHUP)
        assert child.stdout.readline() == "cleaning\n"
        child.send_signal(signal.SIGTERM)
        assert child.stdin is not None
        child.stdin.close()
        assert child.stdout.read() == "clean\n"
    assert child.returncode == 7


def test_under_nohup_a_hangup_stops_nothing() -> None:
    """A lab may be started from a terminal that is closed meanwhile."""
    with started("nohup", working=1) as child:
        child.send_signal(signal.SIGHUP)
        said, _ = child.communicate(timeout=30)
    assert (child.returncode, said) == (0, "done\n")


HELPED = """
import sys
from penstock_lab import interrupts, subprocesses
interrupts.heed()
with interrupts.put_off():
    argv = ("sh", "-c", 'touch "$0"; until [ -e "$0.go" ]; do sleep 0.05; done; echo done', sys.argv[1])
    print(subprocesses.run(argv).stdout, end="", flush=True)
"""


def test_programs_of_the_cleanup_are_not_interrupted(tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to all its programs, and half of a userdel would stop the rest."""
    begun = tmp_path / "begun"
    argv = [sys.executable, "-c", HELPED, str(begun)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True, process_group=0) as child:
        try:
            deadline = time.monotonic() + 30
            while not begun.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            os.killpg(child.pid, signal.SIGINT)
            assert child.stderr is not None
            assert "please wait" in child.stderr.readline()
        finally:
            begun.with_suffix(".go").touch()
        said, _ = child.communicate(timeout=30)
    assert (child.returncode, said) == (0, "done\n")
