"""A NAS that is full, read-only or not there, and users who try what they should not."""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e import intakes

from penstock_lab import passwd, testing

KILOBYTE = 1024
SECRET = "root:$6$secret$"


@pytest.fixture
def nas(lab: testing.RunningLab) -> Iterator[Path]:
    """A small file system of its own, mounted where it can be taken away."""
    with tempfile.TemporaryDirectory(prefix="penstock-nas-") as name, contextlib.ExitStack() as stack:
        base = Path(name)
        base.chmod(0o755)
        store, point = base / "store", base / "nas"
        store.mkdir()
        point.mkdir()
        mount("-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", str(store))
        stack.callback(unmount, store)
        mount("--bind", str(store), str(point))
        stack.callback(unmount, point)
        (point / "slurm-jobs").mkdir()
        yield point


def mount(*words: str) -> None:
    subprocess.run(("mount", *words), check=True, timeout=60)


def unmount(path: Path) -> None:
    """Whatever is mounted there; an intake that looks at it in this very moment has it open."""

    def is_free() -> bool:
        while os.path.ismount(path):
            done = subprocess.run(("umount", str(path)), timeout=60, check=False, capture_output=True)
            if done.returncode:
                assert b"busy" in done.stderr, done.stderr
                return False
        return True

    testing.until(is_free, seconds=60)


@pytest.fixture
def intake(lab: testing.RunningLab, nas: Path) -> Iterator[intakes.OwnIntake]:
    with intakes.own_intake(lab, folder=nas / "slurm-jobs") as running:
        yield running


def become_job(intake: intakes.OwnIntake, *names: str) -> None:
    """All of these files, and no others, have become jobs."""
    testing.until(lambda: len(intake.filed("processed")) >= len(names))
    assert sorted(name.rpartition(".")[0] for name in intake.filed("processed")) == sorted(names)


def test_unmounted_nas_loses_nothing(intake: intakes.OwnIntake, nas: Path) -> None:
    """It can be unmounted while the intake runs; the empty mount point is left alone; then work resumes."""
    intake.drop("before.sh")
    become_job(intake, "before.sh")
    intake.drop(".later.sh")
    unmount(nas)
    testing.until(lambda: "not the NAS" in intake.problem() or "cannot open" in intake.problem())
    intake.kill()
    intake.start()
    testing.until(lambda: intake.process is not None and intake.process.poll() is None)
    time.sleep(1.0)
    assert list(nas.iterdir()) == []
    mount("--bind", str(nas.parent / "store"), str(nas))
    (intake.submit / ".later.sh").rename(intake.submit / "later.sh")
    become_job(intake, "before.sh", "later.sh")
    testing.until(lambda: intake.problem() == "")


def test_a_read_only_nas_is_waited_for(intake: intakes.OwnIntake, nas: Path) -> None:
    """Nothing is submitted that could not be put away, and the inbox says why."""
    mount("-o", "remount,ro", str(nas.parent / "store"))
    try:
        with pytest.raises(AssertionError, match="Read-only"):
            intake.drop("early.sh")
    finally:
        mount("-o", "remount,rw", str(nas.parent / "store"))
    intake.kill()
    intake.drop("waits.sh")
    mount("-o", "remount,ro", str(nas.parent / "store"))
    try:
        intake.start()
        testing.until(lambda: "Read-only" in intake.problem())
        assert intake.jobs() == []
    finally:
        mount("-o", "remount,rw", str(nas.parent / "store"))
    become_job(intake, "waits.sh")


def test_truncated_script_on_a_full_nas_is_not_run(intake: intakes.OwnIntake, nas: Path) -> None:
    """A truncated script is returned with a message; a complete one becomes a job."""
    whole = intakes.PLAIN + "# x\n" * 100
    intake.kill()
    intake.drop("whole.sh", whole)
    room = os.statvfs(nas)
    (nas / "filler").write_bytes(b"x" * (room.f_bavail * room.f_bsize - 16 * KILOBYTE))
    intake.start()
    become_job(intake, "whole.sh")
    with pytest.raises(AssertionError, match="No space left"):
        intake.drop("cut.sh", intakes.PLAIN + "# a long line of a long script\n" * 4000)
    testing.until(lambda: any(item.name == "cut.sh" for item in intake.said().waiting))
    (nas / "filler").unlink()
    testing.until(lambda: "cut.sh.error.txt" in intake.filed("failed"))
    letter = intake.filed("failed")["cut.sh.error.txt"].read_text()
    assert "while the NAS was full" in letter or "may be truncated" in letter
    become_job(intake, "whole.sh")


ATTACK = """
import os, socket, sys
os.chdir(sys.argv[1])
os.symlink("/etc/shadow", "shadow.sh")
os.symlink("../../../../../etc/shadow", "up.sh")
os.symlink(sys.argv[2], "job-of-another.sh")
os.mkfifo("pipe.sh")
socket.socket(socket.AF_UNIX).bind("socket.sh")
with open("huge.sh", "w") as file:
    file.write("#!/bin/sh\\n")
    file.truncate(2**30)
for name in ("new\\nline.sh", "escape\\x1b[31m.sh", "x" * 250, b"\\xff\\xfe.sh"):
    with open(name, "w") as file:
        file.write("#!/bin/sh\\ntrue\\n")
with open("open.sh", "w") as file:
    file.write("#!/bin/sh\\ntrue\\n")
os.chmod("open.sh", 0o666)
for name in ("; touch owned", "$(touch owned)", "`touch owned`", "-rf", "--wrap=touch owned", "a'b\\"c.sh"):
    with open(name, "w") as file:
        file.write("#!/bin/sh\\n#SBATCH --partition=host --output=/dev/null\\ntrue\\n")
"""
REFUSED = {"shadow.sh", "up.sh", "job-of-another.sh", "pipe.sh", "socket.sh", "huge.sh", "open.sh"}
HARMLESS = {"; touch owned", "$(touch owned)", "`touch owned`", "-rf", "--wrap=touch owned", "a'b\"c.sh"}


def test_hostile_files_are_refused(lab: testing.RunningLab, outside: Path) -> None:
    """Links, pipes, sockets, giants, names, others' files: each is moved away with an error file."""
    secret = outside / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    with intakes.own_intake(lab) as intake:
        lab.run_as_user(("python3", "-c", ATTACK, str(intake.submit), str(secret)))
        linked = intake.submit / "linked.sh"
        os.link(secret, linked)
        testing.until(lambda: len(intake.filed("processed")) == len(HARMLESS))
        testing.until(intake.idle)
        letters = {
            name.removesuffix(".error.txt") for name in intake.filed("failed") if name.endswith(".txt")
        }
        assert letters >= REFUSED | {"linked.sh"}
        assert len(letters) == len(REFUSED) + 1 + 4
        assert {name for _, name in intake.jobs()} == HARMLESS
        uid = pwd.getpwnam(lab.user).pw_uid
        for name, path in intake.filed("failed").items():
            assert name.isprintable()
            if name.endswith(".error.txt"):
                assert SECRET not in path.read_text()
                assert "root:" not in path.read_text()
                assert path.stat().st_uid == (0 if name.startswith("linked.sh") else uid)
        assert secret.stat().st_uid == 0
        everything = os.walk(lab.place.directory)  # jobs' folders go meanwhile: rglob() would not bear that
        assert not [where for where, folders, files in everything if "owned" in (*folders, *files)]
        said = intake.log.read_text()
        assert SECRET not in said
        assert all(name in said for name in ("shadow.sh", "pipe.sh", "huge.sh", "linked.sh"))


SWAP = """
import os, sys, time
os.chdir(sys.argv[1])
end = time.monotonic() + 3
while time.monotonic() < end:
    try:
        with open(".a", "w") as file:
            file.write("#!/bin/sh\\n#SBATCH --partition=host --output=/dev/null\\ntrue\\n")
        os.rename(".a", "swap.sh")
        time.sleep(0.01)
        os.symlink(sys.argv[2], ".b")
        os.rename(".b", "swap.sh")
    except FileExistsError:
        os.unlink(".b")
"""


def test_swapping_a_file_for_a_link_gains_nothing(lab: testing.RunningLab, outside: Path) -> None:
    """What is run is the swapper's own file or nothing; what the link points to is never read."""
    secret = outside / "secret.sh"
    secret.write_text(f"#!/bin/sh\n#SBATCH --partition=host --job-name=stolen\n# {SECRET}\n")
    secret.chmod(0o600)
    with intakes.own_intake(lab, settle_seconds=0.01, poll_seconds=0.01) as intake:
        argv = ("python3", "-c", SWAP, str(intake.submit), str(secret))
        swapper = subprocess.Popen(argv, **passwd.identity(lab.user))
        assert swapper.wait(60) == 0
        testing.until(intake.idle)
        assert {name for _, name in intake.jobs()} <= {"swap.sh"}
        for path in (*intake.filed("processed").values(), *intake.filed("failed").values()):
            assert path.is_symlink() or SECRET not in path.read_text()
        for path in intake.filed("processed").values():
            assert not path.is_symlink()
            assert path.owner() == lab.user
        assert "stolen" not in lab.run(("squeue", "--states=all", "--noheader", "--format=%j")).stdout
        assert secret.read_text().endswith(f"{SECRET}\n")


def test_claimed_files_are_private(lab: testing.RunningLab) -> None:
    """Neither claimed files nor the state of the intake can be read, listed or changed."""
    with intakes.own_intake(lab) as intake:
        for path in (intake.folder / ".work", intake.base / "state" / "spool"):
            assert lab.run_as_user(("ls", str(path)), check=False).returncode != 0
        for target in (intake.folder, intake.folder / "processed", intake.folder / "failed"):
            assert lab.run_as_user(("touch", str(target / "x")), check=False).returncode != 0
        journal = intake.base / "state" / "journal.db"
        assert lab.run_as_user(("cat", str(journal)), check=False).returncode != 0


def test_second_intake_with_the_same_state_is_refused(lab: testing.RunningLab) -> None:
    """Two intakes with one journal would not know of each other."""
    with intakes.own_intake(lab) as intake:
        second = lab.penstock("intake", "--config", str(intake.base / "intake.json"), check=False)
        assert second.returncode == 2
        assert "another intake uses" in second.stderr
        assert "Traceback" not in second.stderr
