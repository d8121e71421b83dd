"""The drop folder end to end: real users, real Slurm, an intake that is killed, and a NAS that misbehaves."""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e import intakes, semantics

from penstock_lab import passwd, spec, testing

KILLS, FILES = 30, 200
POD = "#!/bin/sh\n#SBATCH --output=%x-%j.out\necho $SLURM_JOB_NAME\n"
PLAIN = POD.replace("\n", "\n#SBATCH --partition=host\n", 1)
REAL_PODS_AMONG = 10
"""One in so many jobs is a pod where pods are containers: they are dear, and not what the intake is about."""
GUESTS = ("games", "mail")
"""Users that every Debian has and nobody works as."""


@pytest.fixture(scope="module")
def users(lab: testing.RunningLab) -> tuple[str, ...]:
    """Three different users who may submit."""
    for name in GUESTS:
        testing.lab_command(lab.place, "adduser", name)
    return (lab.user, *GUESTS)


@pytest.fixture
def intake(lab: testing.RunningLab) -> Iterator[intakes.OwnIntake]:
    with intakes.own_intake(lab) as running:
        yield running


def writer(
    intake: intakes.OwnIntake, user: str, text: str, names: list[str], pause: float
) -> subprocess.Popen[bytes]:
    """A user who drops files, one after the other."""
    argv = ("python3", "-c", intakes.WRITE, str(intake.submit), text, str(pause), *names)
    return subprocess.Popen(argv, cwd="/", **passwd.identity(user))


def test_200_files_of_three_users_become_200_jobs_although_the_intake_is_killed_30_times(
    intake: intakes.OwnIntake, users: tuple[str, ...]
) -> None:
    """No more, no fewer: every file is one job under its own name, nothing is left behind, and every job that
    is a pod leaves results that are whole.
    """
    chance = random.Random(8)  # noqa: S311  # moments of death, the same every time
    names = {
        user: [f"{user}-{number}.sh" for number in range(number, FILES, 3)]
        for number, user in enumerate(users)
    }
    step = 1 if testing.kubernetes() == spec.DEV else REAL_PODS_AMONG
    pods = {name for some in names.values() for name in some[::step]}
    writers = [
        writer(intake, user, text, [name for name in some if (name in pods) == (text == POD)], 0.3)
        for user, some in names.items()
        for text in (POD, PLAIN)
    ]
    try:
        for _ in range(KILLS):
            testing.until(intake.looking)
            time.sleep(chance.uniform(0.0, 0.5))
            intake.kill()
            intake.jobs()  # before slurmctld has forgotten the first
            intake.start()
        assert {one.wait(300) for one in writers} == {0}
    finally:
        for one in writers:
            one.kill()
            one.wait()
    testing.until(lambda: len(intake.filed("processed")) >= FILES, seconds=300)
    everything = sorted(name for some in names.values() for name in some)
    jobs = intake.jobs()
    assert sorted(name for _, name in jobs) == everything
    assert sorted(intake.filed("processed")) == sorted(f"{name}.{job}" for job, name in jobs)
    assert intake.filed("failed") == {}
    assert intake.idle()
    assert intake.log.read_text().count("claimed files of an earlier run") >= 3, (
        "too few of the killed had files in hand"
    )
    check_results(intake.lab, [(job, name) for job, name in jobs if name in pods])


def check_results(lab: testing.RunningLab, jobs: list[tuple[str, str]]) -> None:
    """Each job's folder has its own output, and its checksums hold."""
    folders = {name: lab.place.nas_results / job for job, name in jobs}
    testing.until(lambda: all((path / "checksums.txt").exists() for path in folders.values()), seconds=300)
    for name, path in folders.items():
        assert (path / "stdout.log").read_text() == f"{name}\n"
        argv = ("sha256sum", "--check", "--strict", "--quiet", "checksums.txt")
        assert subprocess.run(argv, cwd=path, timeout=60, check=False).returncode == 0, name


def test_jobs_run_as_their_files_owners(intake: intakes.OwnIntake, users: tuple[str, ...]) -> None:
    """With the owner's name, home and folder, and nothing of root's environment."""
    script = "#!/bin/sh\n#SBATCH --partition=host --output=mine.out\n"
    script += "id -un; pwd; echo $HOME; echo ${PYTHONPATH-none}\n"
    for user in users:
        intake.drop(f"{user}.sh", script, user=user)
    testing.until(lambda: len(intake.filed("processed")) == len(users))
    for name, path in intake.filed("processed").items():
        user, job = name.split(".sh.")
        assert path.owner() == user
        assert semantics.record(intake.lab, job) == semantics.Record("COMPLETED", "0:0")
        home = intake.lab.place.nas_home(user)
        assert (home / "mine.out").read_text().splitlines()[:2] == [user, str(home)]
        assert (home / "mine.out").read_text().splitlines()[3] == "none"


def test_dropped_script_runs_as_a_pod(lab: testing.RunningLab) -> None:
    """The whole path: folder, intake, Slurm, pod, output in the user's folder; the inbox shows it."""
    name = f"hello-{secrets.token_hex(4)}.sh"
    script = "#!/bin/sh\n#SBATCH --output=%x.out\necho hello\n"
    lab.run_as_user(("python3", "-c", intakes.WRITE, str(lab.place.nas_submit), script, "0", name))
    testing.until(lambda: list(lab.place.nas_drop.glob(f"processed/*/{name}.*")))
    (path,) = lab.place.nas_drop.glob(f"processed/*/{name}.*")
    job = path.name.rpartition(".")[2]
    assert semantics.record(lab, job) == semantics.Record("COMPLETED", "0:0")
    assert (lab.home / f"{name}.out").read_text() == "hello\n"

    def shown() -> bool:
        inbox = json.loads(lab.run_as_user(("penstock", "inbox", "--format", "json")).stdout)
        return any((item["name"], item["job"]) == (name, job) for item in inbox["done"])

    testing.until(shown)


def test_dropped_file_is_validated_against_the_site(lab: testing.RunningLab) -> None:
    """A request that no node can satisfy is refused with its line."""
    name = f"large-{secrets.token_hex(4)}.sh"
    script = "#!/bin/sh\n#SBATCH --gres=gpu:8\nhostname\n"
    lab.run_as_user(("python3", "-c", intakes.WRITE, str(lab.place.nas_submit), script, "0", name))
    testing.until(lambda: list(lab.place.nas_drop.glob(f"failed/*/{name}.error.txt")))
    (letter,) = lab.place.nas_drop.glob(f"failed/*/{name}.error.txt")
    assert "8 GPUs on one node requested, the largest node has 4" in letter.read_text()
    testing.until(lambda: name in lab.run_as_user(("penstock", "inbox")).stdout)


def test_dropped_folder_is_reported_in_the_inbox(lab: testing.RunningLab) -> None:
    """It is not searched, it is not a job, and it stays in place."""
    folder = lab.place.nas_submit / f"folder-{secrets.token_hex(4)}"
    lab.run_as_user(("mkdir", str(folder)))

    def line() -> str:
        printed = lab.run_as_user(("penstock", "inbox")).stdout.split("\n")
        return next((line for line in printed if line.startswith(folder.name)), "")

    try:
        testing.until(lambda: "only files become jobs; copy them directly into submit/" in line())
        assert line().split()[1:3] == [lab.user, "left"]
        assert folder.is_dir()
    finally:
        folder.rmdir()
    testing.until(lambda: not line())


def test_the_lab_shows_the_intake_and_who_may_see_what(
    lab: testing.RunningLab, users: tuple[str, ...]
) -> None:
    """In `lab status`; another user's inbox has none of our files."""
    state = json.loads(testing.lab_command(lab.place, "status", "--format", "json", check=False).stdout)
    health = {part["name"]: part["health"] for part in state["components"]}
    assert health["intake"] == "ok"
    name = f"seen-{secrets.token_hex(4)}.sh"
    lab.run_as_user(("python3", "-c", intakes.WRITE, str(lab.place.nas_submit), intakes.PLAIN, "0", name))
    testing.until(lambda: list(lab.place.nas_drop.glob(f"processed/*/{name}.*")))
    testing.until(lambda: name in lab.run_as_user(("penstock", "inbox", "--format", "json")).stdout)
    guests = lab.run_as_user(("penstock", "inbox", "--format", "json"), user=users[1]).stdout
    assert name not in guests


def test_ways_of_copying_files(lab: testing.RunningLab) -> None:
    """A slow copy, a rename, a replacement, a deletion, a marker, and files an hour off, in parallel."""
    with intakes.own_intake(lab, settle_seconds=12.0) as intake:
        enough = intake.base / "enough"
        crawling = slow_writer(intake, "slow.sh", until=enough)
        intake.drop("deleted.sh").unlink()
        intake.drop("replaced.sh", intakes.PLAIN + "# old\n")
        intake.drop("replaced.sh", intakes.PLAIN + "# new\n")
        intake.drop("marked.sh")
        intake.drop("marked.sh.done", "")
        for name, hours in (("ahead.sh", 1), ("behind.sh", -1)):
            path = intake.drop(name)
            os.utime(path, (time.time() + 3600 * hours,) * 2)
        expected = {"ahead.sh", "behind.sh", "marked.sh", "replaced.sh", "slow.sh"}
        testing.until(lambda: len(intake.filed("processed")) == len(expected) - 1)
        assert crawling.poll() is None, "the slow copy was taken before it had ended"
        assert "slow.sh" in [item.name for item in intake.said().waiting]
        enough.touch()
        assert crawling.wait(60) == 0
        testing.until(lambda: len(intake.filed("processed")) == len(expected))
        files = {name.rpartition(".")[0]: path for name, path in intake.filed("processed").items()}
        assert set(files) == expected
        assert re.fullmatch(rf"{re.escape(intakes.PLAIN)}(# more\n)+# end\n", files["slow.sh"].read_text())
        assert files["replaced.sh"].read_text().endswith("# new\n")
        assert intake.filed("failed") == {}
        assert not any(intake.submit.iterdir())
        assert intake.stop() == 0


SLOWLY = """
import os, sys, time
with open(sys.argv[1], "w") as file:
    file.write(sys.argv[2])
    while not os.path.exists(sys.argv[3]):
        file.write("# more\\n")
        file.flush()
        time.sleep(0.5)
    file.write("# end\\n")
"""


def slow_writer(intake: intakes.OwnIntake, name: str, *, until: Path) -> subprocess.Popen[bytes]:
    """A copy that takes half a second for every line, and ends when that file is there."""
    argv = ("python3", "-c", SLOWLY, str(intake.submit / name), intakes.PLAIN, str(until))
    return subprocess.Popen(argv, cwd="/", **passwd.identity(intake.lab.user))
