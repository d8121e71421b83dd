"""What is left of jobs, end to end: every way to end, three users, and a collector and a penstockd that die.

All jobs of the first tests are submitted together and waited for together: each test reads what became of its
own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e import semantics

from penstock.results import checksums
from penstock_lab import spec, testing

Lab = semantics.Lab
Json = dict[str, Any]
GUESTS = ("games", "news")
"""Users that every Debian has and nobody works as."""
UP = "echo up\nfor i in $(seq 600); do sleep 0.1; done\n"
OUTPUTS = """#K8S_OUTPUTS=data/*.csv
#K8S_OUTPUTS=**/*.log
mkdir -p data/deep; echo 1 >'data/a b.csv'; echo 2 >data/deep/x.log; ln -s /etc/passwd data/link.csv
cd "$PENSTOCK_OUTPUT_DIR"; echo precious >model; mkdir sub; echo 3 >sub/x
"""
AGAIN = """echo "attempt ${SLURM_RESTART_COUNT:-0}"
echo "${SLURM_RESTART_COUNT:-0}" >"$PENSTOCK_OUTPUT_DIR/which"
[ "${SLURM_RESTART_COUNT:-0}" = 1 ] && exit 0
"""


MADE = f"penstock-made-{os.getpid()}"
"""A folder in /tmp, which the dev cluster's containers share with the host."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A job, and what is done to it once it says `up`."""

    script: str
    options: tuple[str, ...] = ()
    act: Callable[[Lab, str], object] | None = None
    user: str = ""
    attempt: int = 0


CASES = {
    "outputs": Case(OUTPUTS),
    "failing": Case("echo out; echo err >&2; exit 7\n", ("--error=err-%j.txt",)),
    "killed": Case("kill -9 $$\n"),
    "cancelled": Case(UP, (), lambda lab, job_id: lab.run_as_user(("scancel", job_id))),
    "timeout": Case(
        UP, (), lambda lab, job_id: lab.run(("scontrol", "update", f"JobId={job_id}", "EndTime=now+3"))
    ),
    "requeued": Case(
        AGAIN + UP, ("--requeue",), lambda lab, job_id: lab.run(("scontrol", "requeue", job_id)), attempt=1
    ),
    "refused": Case("#K8S_SHM_SIZE=nonsense\necho never\n"),
    "nodes": Case("echo two\n", ("--nodes=2",)),
    "container": Case(
        f"#K8S_WORKDIR=/tmp\n#K8S_OUTPUTS={MADE}*/*.csv\nmkdir {MADE}; echo 1 >'{MADE}/a b.csv'; exit 4\n"
    ),
    "guest-0": Case("id -un\n", user=GUESTS[0]),
    "guest-1": Case("id -un\n", user=GUESTS[1]),
}


@dataclasses.dataclass(frozen=True)
class Ended:
    """A job whose results are there."""

    job_id: str
    folder: Path
    summary: Json


def results_of(lab: Lab, name: str, *, attempt: int = 0, timeout: float = 120) -> Ended:
    """Wait until they are whole."""
    folder = lab.place.nas_results / name

    def whole() -> bool:
        path = folder / "job_summary.json"
        with contextlib.suppress(FileNotFoundError):  # there is a moment between two attempts' folders
            return (folder / "checksums.txt").exists() and json.loads(path.read_text())["restarts"] == attempt
        return False

    semantics.wait_until(whole, f"results of {name}", timeout=timeout)
    return Ended(name, folder, json.loads((folder / "job_summary.json").read_text()))


def sha256sum(folder: Path) -> str:
    argv = ["sha256sum", "--check", "--strict", "--quiet", "checksums.txt"]
    result = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return result.stdout + result.stderr


def submit(lab: Lab, case: Case, cwd: Path) -> str:
    return lab.sbatch(f"#!/bin/sh\n{case.script}", *case.options, user=case.user, cwd=cwd)


@pytest.fixture(scope="module")
def guests(lab: Lab) -> None:
    for guest in GUESTS:
        testing.lab_command(lab.place, "adduser", guest)


@pytest.fixture(scope="module")
def ended(lab: Lab, guests: None) -> Iterator[dict[str, Ended]]:
    """Every case, run."""
    job_ids: dict[str, str] = {}
    for name, case in CASES.items():
        cwd = lab.place.nas_home(case.user) if case.user else semantics.folder(lab, name)
        job_ids[name] = submit(lab, case, cwd)
        if case.act:
            semantics.wait_for_text(cwd / f"slurm-{job_ids[name]}.out", "up")
            case.act(lab, job_ids[name])
    try:
        yield {name: results_of(lab, job_ids[name], attempt=CASES[name].attempt) for name in CASES}
    finally:
        made = Path("/tmp") / MADE  # noqa: S108  # see there
        lab.run_as_user(("rm", "-f", str(made / "a b.csv")), check=False)
        lab.run_as_user(("rmdir", str(made)), check=False)


def test_every_folder_is_complete_and_owned_by_the_user(lab: Lab, ended: dict[str, Ended]) -> None:
    """`sha256sum -c` succeeds, nothing is missing, and everything belongs to the job's owner."""
    for name, job in ended.items():
        assert sha256sum(job.folder) == "", name
        assert checksums.verify(job.folder).is_clean, name
        owner = CASES[name].user or lab.user
        owners = {path.owner() for path in (job.folder, *job.folder.rglob("*")) if not path.is_symlink()}
        assert owners == {owner}, name
        assert job.summary["user"] == owner


@pytest.mark.parametrize(
    ("name", "state", "code", "signal_number"),
    [
        ("outputs", "COMPLETED", 0, 0),
        ("failing", "FAILED", 7, 0),
        ("killed", "FAILED", 0, 9),
        ("cancelled", "CANCELLED", 0, 15),
        ("timeout", "TIMEOUT", 0, 15),
        ("requeued", "COMPLETED", 0, 0),
        ("refused", "FAILED", 1, 0),
        ("nodes", "COMPLETED", 0, 0),
    ],
)
def test_state_and_exit_code(
    ended: dict[str, Ended], name: str, state: str, code: int, signal_number: int
) -> None:
    """Slurm's state, the container's code."""
    found = ended[name].summary
    assert (found["state"], found["exit_code"], found["signal"]) == (state, code, signal_number)


def test_facts_of_the_summary(lab: Lab, ended: dict[str, Ended]) -> None:
    """Times in order, nodes, pods, image, what was asked and used."""
    found = ended["nodes"].summary
    times = found["times"]
    assert times["queued"] <= times["started"] <= times["ended"] <= times["collected"]
    assert [pod["rank"] for pod in found["pods"]] == [0, 1]
    assert [pod["node"] for pod in found["pods"]] == found["nodes"]
    assert found["asked"]["nodes"] == 2
    assert found["used"]["cpu_seconds"] is not None
    if testing.kubernetes() == spec.REAL:
        assert found["image_digest"].startswith("sha256:")
        assert 0 < found["used"]["memory_bytes"] <= found["asked"]["memory_bytes"]


def test_outputs_of_both_kinds(lab: Lab, ended: dict[str, Ended]) -> None:
    """Moved from the job's own folder, copied from its working directory; links are named, not followed."""
    folder = ended["outputs"].folder / "outputs"
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == {"data/a b.csv", "data/deep/x.log", "model", "sub/x"}
    assert "data/link.csv: symbolic link, not followed" in ended["outputs"].summary["notes"]
    ours = {one.job_id for one in ended.values()}
    left = [path.name for path in (lab.place.nas_results / ".outputs").iterdir()]
    assert [name for name in left if name.partition("-")[0] in ours] == []


def test_streams(ended: dict[str, Ended]) -> None:
    """Apart when the job had two files, in stdout.log when it had one."""
    assert (ended["failing"].folder / "stdout.log").read_text() == "out\n"
    assert (ended["failing"].folder / "stderr.log").read_text() == "err\n"
    assert "CANCELLED" in (ended["cancelled"].folder / "stdout.log").read_text()
    assert "is not a valid amount of memory" in (ended["refused"].folder / "stdout.log").read_text()
    assert ended["refused"].summary["reason"].startswith("not started: ")


def test_earlier_attempt_is_kept(ended: dict[str, Ended]) -> None:
    """With its own output, outputs, summary and checksums."""
    job = ended["requeued"]
    earlier = job.folder / "attempt-0"
    assert (job.folder / "stdout.log").read_text() == "attempt 1\n"
    assert (earlier / "stdout.log").read_text().startswith("attempt 0\nup\n")
    assert [(where / "outputs" / "which").read_text() for where in (earlier, job.folder)] == ["0\n", "1\n"]
    assert json.loads((earlier / "job_summary.json").read_text())["state"] == "REQUEUED"
    assert sha256sum(earlier) == ""


def test_results_are_private(lab: Lab, ended: dict[str, Ended]) -> None:
    """And users cannot write to the results folder."""
    folder = ended["guest-0"].folder
    assert (folder / "stdout.log").read_text() == f"{GUESTS[0]}\n"
    for argv in (
        ("cat", str(folder / "stdout.log")),
        ("ls", str(folder)),
        ("ls", str(lab.place.nas_results / ".outputs")),
        ("mkdir", str(lab.place.nas_results / "999999")),
        ("ln", "-s", "/etc", str(lab.place.nas_results / "999999")),
        ("mv", str(folder), str(lab.place.nas_results / "mine")),
        ("rm", "-r", str(folder)),
    ):
        assert lab.run_as_user(argv, user=GUESTS[1], check=False).returncode != 0, argv
    assert sha256sum(folder) == ""


def test_results_command(lab: Lab, ended: dict[str, Ended]) -> None:
    """For people and for programs; verified; changed files are named; others' are refused."""
    job = ended["failing"]
    shown = lab.run_as_user(("penstock", "results", job.job_id, "--verify"))
    assert "state      FAILED, exit code 7" in shown.stdout
    assert "files are unchanged" in shown.stdout
    said = lab.run_as_user(("penstock", "results", job.job_id, "--format", "json")).stdout
    (found,) = json.loads(said)["results"]
    assert (found["folder"], found["summary"]["exit_code"]) == (str(job.folder), 7)
    refused = lab.run_as_user(("penstock", "results", job.job_id), user=GUESTS[0], check=False)
    assert (refused.returncode, "no permission to read" in refused.stderr) == (1, True)
    path = job.folder / "stderr.log"
    path.write_text("changed\n")
    changed = lab.run_as_user(("penstock", "results", job.job_id, "--verify"), check=False)
    assert (changed.returncode, "changed    stderr.log" in changed.stdout) == (1, True)
    path.write_text("err\n")


def test_array_tasks_have_folders_of_their_own(lab: Lab) -> None:
    """Named as Slurm shows them; `penstock results` takes the array, a task, and Slurm's own number."""
    array = lab.sbatch(
        "#!/bin/sh\necho task $SLURM_ARRAY_TASK_ID $SLURM_JOB_ID\n", "--array=1,5", "--output=/dev/null"
    )
    for task in (1, 5):
        assert results_of(lab, f"{array}_{task}").summary["job"] == f"{array}_{task}"
    found = json.loads(lab.run_as_user(("penstock", "results", array, "--format", "json")).stdout)["results"]
    assert [job["summary"]["job"] for job in found] == [f"{array}_1", f"{array}_5"]
    number = str(found[0]["summary"]["job_id"])
    assert f"job        {array}_1" in lab.run_as_user(("penstock", "results", number)).stdout


def test_jobs_without_results_are_told_apart(lab: Lab) -> None:
    """One that waits, one that was cancelled before it began, and one that never was."""
    job_id = lab.sbatch("#!/bin/sh\ntrue\n", "--hold")
    waiting = lab.run_as_user(("penstock", "results", job_id), check=False)
    assert (waiting.returncode, "which is PENDING" in waiting.stderr) == (3, True)
    lab.run_as_user(("scancel", job_id))
    semantics.record(lab, job_id)
    gone = lab.run_as_user(("penstock", "results", job_id), check=False)
    assert (gone.returncode, "which is CANCELLED" in gone.stderr) == (3, True)
    assert lab.run_as_user(("penstock", "results", "4000000"), check=False).returncode == 3
    assert lab.run_as_user(("penstock", "results", "../17"), check=False).returncode == 2


def test_outputs_that_only_the_container_has(ended: dict[str, Ended]) -> None:
    """A working directory that is not shared: copied out by the agent before the container ends."""
    job = ended["container"]
    assert (job.folder / "outputs" / MADE / "a b.csv").read_text() == "1\n"
    assert (job.summary["exit_code"], job.summary["notes"]) == (4, [])


def test_output_that_goes_through_the_launcher(lab: Lab, outside: Path) -> None:
    """To a file that pods do not see."""
    job = results_of(lab, lab.sbatch("#!/bin/sh\nseq 1 1000\n", f"--output={outside}/out.txt"))
    assert (job.folder / "stdout.log").read_text() == (outside / "out.txt").read_text()
    assert (job.folder / "stdout.log").read_text().endswith("1000\n")


def test_logs_during_and_after_the_job(lab: Lab) -> None:
    """Followed from the first line to the end; then from the results; for its owner only."""
    script = "#!/bin/sh\numask 077\nfor i in 1 2 3 4 5 6; do echo line $i; sleep 0.5; done\n"
    job_id = lab.sbatch(script, "--output=live-%j-%x.txt")
    shown = lab.run_as_user(("penstock", "logs", job_id, "-f"), timeout=120).stdout
    assert shown == "".join(f"line {number}\n" for number in range(1, 7))
    results_of(lab, job_id)
    assert lab.run_as_user(("penstock", "logs", job_id)).stdout == shown
    refused = lab.run_as_user(("penstock", "logs", job_id), user="nobody", check=False, cwd=Path("/"))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "collecting from" in lab.run(("penstock", "logs", "--daemon", "collector")).stdout
    assert "listening on" in lab.run(("penstock", "logs", "--daemon")).stdout


def test_a_task_of_an_array_collects_its_own_files_alone(lab: Lab) -> None:
    """Named by %a; what would name the others' files, too, is left where it is, and that is said."""
    script = (
        "#!/bin/sh\n#K8S_OUTPUTS=own-%A_%a.csv\n#K8S_OUTPUTS=own-*.csv\n"
        "echo $SLURM_ARRAY_TASK_ID >own-${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID.csv\n"
    )
    array = lab.sbatch(script, "--array=1-3", "--output=/dev/null")
    for task in (1, 2, 3):
        found = results_of(lab, f"{array}_{task}")
        assert [path.name for path in (found.folder / "outputs").iterdir()] == [f"own-{array}_{task}.csv"]
        assert any(
            note.startswith("#K8S_OUTPUTS=own-*.csv: not collected") for note in found.summary["notes"]
        )


@pytest.mark.parametrize("option", ["--output", "--chdir"])
def test_job_that_slurmd_could_not_start_has_the_reason(lab: Lab, option: str) -> None:
    """The output folder is missing: Slurm itself only says FAILED 0:53."""
    folder = lab.home / "never-made"
    named = folder / "job.out" if option == "--output" else folder
    job_id = lab.sbatch("#!/bin/sh\n", f"{option}={named}")
    found = results_of(lab, job_id)
    assert (found.summary["state"], found.summary["signal"], found.summary["pods"]) == ("FAILED", 53, [])
    reason = found.summary["reason"]
    assert f"could not open its output {folder}/" in reason
    testing.until(lambda: lab.accounted(job_id, "Comment") == [reason])
    (shown,) = json.loads(lab.run_as_user(("penstock", "show", job_id, "--format", "json")).stdout)["jobs"]
    assert shown["comment"] == reason
    assert ("not started", reason) in [(step["name"], step["text"]) for step in shown["timeline"]]
    assert "FAILED, not started (0:53)\n" in (found.folder / "job_summary.txt").read_text()
    silent = lab.run_as_user(("penstock", "logs", job_id), check=False)
    assert (silent.returncode, silent.stdout) == (3, "")
    assert reason in silent.stderr
