"""I4, Slurm's side and our own: slurmctld, slurmd and penstockd away or without memory, and a full disk."""

from __future__ import annotations

import contextlib
import errno
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e import labs, semantics, storms

from penstock_lab import files, testing
from penstock_lab.faultproxy import controlsocket

Lab = semantics.Lab
DONE = semantics.Record("COMPLETED", "0:0")
HELLO = "#!/bin/sh\necho hello\n"


@pytest.fixture(scope="session")
def lab(stormy_lab: Lab) -> Lab:
    """The lab of all tests here."""
    return stormy_lab


@storms.LONG
def test_slurmctld_away_and_back(lab: Lab) -> None:
    """A job that ends meanwhile has its true record, one that goes on is not touched."""
    lives, ends = storms.start(lab), storms.start(lab, "-N2")
    with storms.away(lab, "slurmctld"):
        ends.end()
        time.sleep(3)
        assert lives.is_untouched()
    ends.check_true_end()
    assert lives.is_untouched()
    lives.end()
    lives.check_true_end()


def test_slurmctld_and_penstockd_outage(lab: Lab) -> None:
    """Lost state is read from the other one; a lost slurmd changes nothing either."""
    lives, ends = storms.start(lab, "-w", "n1"), storms.start(lab, "-w", "n2")
    for name in ("penstockd", "slurmctld", "slurmd-n1"):
        storms.kill(lab, name)
    ends.end()
    storms.restart(lab)
    ends.check_true_end()
    assert lives.is_untouched()
    new = lab.sbatch(HELLO)
    assert semantics.record(lab, new) == DONE
    lives.end()
    lives.check_true_end()


@storms.LONG
def test_slurmctld_forgets_one_job(lab: Lab) -> None:
    """Its state is of a time before the job: the job's pod goes, every other job's stays.

    The number is given anew, and whoever gets it gets nothing else of that job.
    """
    kept = storms.start(lab)
    state = lab.place.controller_state
    saved = state.with_name("state.saved")
    lab.run(("scontrol", "ping"))
    with storms.away(lab, "slurmctld"):
        shutil.copytree(state, saved, copy_function=_with_owner)
    try:
        lost = storms.start(lab)
        with storms.away(lab, "slurmctld"):
            for file in ("job_state", "job_state.old"):
                _with_owner(saved / file, state / file)
            time.sleep(1)
            assert kept.is_untouched()
            assert lost.is_untouched()
    finally:
        shutil.rmtree(saved)
    folder = semantics.folder(lab, "anew")
    anew = lab.sbatch("#!/bin/sh\necho another\n", "--output=o", cwd=folder)
    assert anew == lost.job_id
    assert semantics.record(lab, anew, timeout=300) == DONE
    assert (folder / "o").read_text() == "another\n"
    semantics.wait_until(lambda: semantics.pods(lab, lost.job_id) == [], "the forgotten job's pod is gone")
    assert (lost.folder / "o").read_text() == "begin\n"
    assert kept.is_untouched()
    kept.end()
    kept.check_true_end()


def _with_owner(source: str | Path, target: str | Path) -> None:
    shutil.copy2(source, target)
    found = Path(source).stat()
    shutil.chown(target, found.st_uid, found.st_gid)


@storms.LONG
def test_penstockd_away_for_minutes(lab: Lab) -> None:
    """Jobs run on and end, new ones wait; all is as it should be when it is back, from Slurm and Kubernetes
    alone: nothing that it wrote itself is there any more.
    """
    lives, ends = storms.start(lab), storms.start(lab)
    with storms.away(lab, "penstockd"):
        ends.end()
        waiting = lab.sbatch(HELLO)
        for note in (lab.place.attempts / "running").iterdir():
            note.unlink()
        storms.stays_so(lives.is_untouched, seconds=130)
        assert semantics.pods(lab, waiting) == []
    ends.check_true_end()
    assert semantics.record(lab, waiting) == DONE
    assert lives.is_untouched()
    lives.end()
    lives.check_true_end()
    assert storms.drained(lab) == []


JUMPY = """\
import pathlib
import time

true, offset = time.time, pathlib.Path(__file__).with_name("offset")
time.time = lambda: true() + float(offset.read_text())
"""
FAR = 1000 * 86400.0


@pytest.fixture
def offset(lab: Lab, outside: Path) -> Iterator[Path]:
    """The file says by how many seconds penstockd's wall clock is wrong."""
    found = outside / "offset"
    found.write_text("0")
    (outside / "sitecustomize.py").write_text(JUMPY)
    storms.kill(lab, "penstockd")
    testing.lab_command(lab.place, "up", PYTHONPATH=str(outside))
    yield found
    with storms.away(lab, "penstockd"):
        pass


def day(seconds: float) -> str:
    """Of a clock that is so far ahead."""
    return time.strftime("%Y-%m-%d", time.localtime(time.time() + seconds))


def test_clock_jumps(lab: Lab, offset: Path, switch: controlsocket.Control) -> None:
    """Years ahead and back, with the API up and down: timeouts are not affected."""
    lives = storms.start(lab)
    for seconds in (FAR, -FAR):
        ends, days = storms.start(lab), {day(seconds)}
        with switch.during(storms.Rule(fault="unreachable")):
            files.write(offset, str(seconds))
            ends.end()
            storms.stays_so(lives.is_untouched, seconds=1)
        ends.check_true_end()
        assert semantics.record(lab, lab.sbatch(HELLO)) == DONE
        assert lives.is_untouched()
        days.add(day(seconds))  # it may be midnight
        log = lab.place.component_log("penstockd").read_text()
        assert any(f"\n{there}" in log for there in days)
    lives.end()
    lives.check_true_end()


@contextlib.contextmanager
def full(directory: Path) -> Iterator[None]:
    """Not a byte more can be written to the file system that is mounted there."""
    ballast = directory / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            while free := shutil.disk_usage(directory).free:
                try:
                    file.write(b"\0" * free)
                except OSError as error:
                    if error.errno != errno.ENOSPC:  # else somebody has written there since: all the better
                        raise
        yield
    finally:
        ballast.unlink()


def stop_all_who_look(lab: Lab) -> None:
    """penstockd, and slurmds: they have a mount namespace of their own and would not see what is mounted."""
    ending = ("squeue", "--noheader", "--states=COMPLETING")
    semantics.wait_until(  # what a killed slurmd did not say is asked for again after two minutes only
        lambda: not lab.run(ending).stdout, "no Epilog runs"
    )
    for name in labs.pids(lab.place):
        if name == "penstockd" or name.startswith("slurmd-"):
            storms.kill(lab, name)


@pytest.fixture
def small_disks(lab: Lab) -> Iterator[tuple[Path, ...]]:
    """penstockd logs, has its socket and keeps its notes on file systems with next to no room."""
    places = (lab.place.log, lab.place.penstockd_run, lab.place.attempts)
    stop_all_who_look(lab)
    for place in places:
        lab.run(("mount", "-t", "tmpfs", "-o", "size=64k,mode=0777", "tmpfs", str(place)))
    storms.restart(lab)
    yield places
    stop_all_who_look(lab)
    for place in places:
        lab.run(("umount", "--lazy", str(place)))
    storms.restart(lab)


def test_full_disk(lab: Lab, small_disks: tuple[Path, ...]) -> None:
    """Nothing can be logged or recorded: running jobs continue, and new ones start, run and end."""
    lives = storms.start(lab)
    with contextlib.ExitStack() as stack:
        for place in small_disks:
            stack.enter_context(full(place))
        job_ids = [lab.sbatch(HELLO) for _ in range(3)]
        assert set(semantics.records(lab, job_ids).values()) == {DONE}
        for job_id in job_ids:
            semantics.wait_until(lambda: not semantics.pods(lab, job_id), f"{job_id}'s pod is gone")  # noqa: B023  # called before the next
        assert lives.is_untouched()
    lives.end()
    lives.check_true_end()
