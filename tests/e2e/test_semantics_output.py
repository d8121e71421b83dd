"""Output: in the files that Slurm's patterns name, live while the job runs, whole however fast it ends."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path

import pytest
from tests.e2e import clusters, semantics
from tests.e2e.semantics import Row

Lab = semantics.Lab
HELLO = "#!/bin/sh\necho out; echo err >&2\n"
PATTERNS = {
    "job": ("--output=%j.o", "--error=%j.e"),
    "name-and-user": ("-Jan odd name", "--output=%x-%u.o"),
    "node": ("--nodelist=n1", "--output=%N-%n-%t-%s.o"),
    "array-form-without-array": ("--output=%A_%a.o",),
    "padded": ("--output=%8j.o",),
    "percent": ("--output=100%%.o",),
    "folder": ("--output=./%x.o", "--job-name=plain"),
}
BIG_LINES = 13_000_000  # `seq` makes 105 MB of them
MANY_LINES = 3_000_000
MOST_OF_A_PIPE = 60_000


@pytest.fixture(scope="module")
def patterns(lab: Lab) -> dict[str, dict[str, semantics.Trace]]:
    return semantics.twins(
        lab, {name: Row(script=HELLO, options=options) for name, options in PATTERNS.items()}
    )


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_name_the_same_files(patterns: dict[str, dict[str, semantics.Trace]], name: str) -> None:
    """%j %x %u %N and the rest stand for what they stand for in plain Slurm."""
    plain, pod = patterns[name][semantics.PLAIN], patterns[name][semantics.PODS]
    assert pod.files == plain.files
    assert pod.files


def test_every_array_task_has_its_own_file(lab: Lab) -> None:
    """%A is the array's id, %a the task's number."""
    folder = semantics.folder(lab)
    row = Row(script="#!/bin/sh\necho $SLURM_ARRAY_TASK_ID\n", options=("--array=3,5", "--output=%A-%a.o"))
    job_id = semantics.submit(lab, row, cwd=folder)
    semantics.records(lab, (f"{job_id}_3", f"{job_id}_5"))
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        f"{job_id}-3.o": "3\n",
        f"{job_id}-5.o": "5\n",
    }


@pytest.mark.parametrize("mode", ["append", "truncate"])
def test_an_existing_file_is_treated_as_asked(lab: Lab, mode: str) -> None:
    """--open-mode decides whether what was there stays."""
    folder = semantics.folder(lab)
    before = "from before, longer than what comes\n"
    lab.run_as_user(("tee", str(folder / "o")), stdin=before)
    row = Row(script="#!/bin/sh\necho new\n", options=("--output=o", f"--open-mode={mode}"))
    semantics.record(lab, semantics.submit(lab, row, cwd=folder))
    assert (folder / "o").read_text() == (before if mode == "append" else "") + "new\n"


@pytest.mark.parametrize("shared", [True, False], ids=["written-by-pod", "streamed"])
def test_output_is_there_while_the_job_runs(lab: Lab, outside: Path, shared: bool) -> None:
    """A line can be read before the job has ended, not just afterwards."""
    folder = semantics.folder(lab) if shared else outside
    signal = semantics.folder(lab) / "go"
    script = f"#!/bin/sh\necho first\nuntil [ -e {signal} ]; do sleep 0.1; done\necho second\n"
    job_id = lab.sbatch(script, f"--output={folder}/live.o")
    semantics.wait_for_text(folder / "live.o", "first\n")
    assert lab.job(job_id)["JobState"] == "RUNNING"
    lab.run_as_user(("touch", str(signal)))
    assert semantics.record(lab, job_id) == semantics.Record("COMPLETED", "0:0")
    assert (folder / "live.o").read_text() == "first\nsecond\n"


def digest_of_seq(last: int) -> tuple[int, str]:
    """Size and checksum of what `seq 1 last` prints."""
    digest, size = hashlib.sha256(), 0
    for first in range(1, last + 1, 1_000_000):
        block = "".join(f"{n}\n" for n in range(first, min(first + 1_000_000, last + 1))).encode()
        digest.update(block)
        size += len(block)
    return size, digest.hexdigest()


def test_a_hundred_megabytes_arrive_whole(lab: Lab, outside: Path) -> None:
    """Nothing is lost or doubled, on either way out, though the job ends with its last byte."""
    script = f"#!/bin/sh\nexec seq 1 {BIG_LINES}\n"
    folder = semantics.folder(lab)
    jobs = [lab.sbatch(script, f"--output={place}/big.o") for place in (folder, outside)]
    expected = digest_of_seq(BIG_LINES)
    assert expected[0] > 100_000_000
    semantics.records(lab, jobs, timeout=240)
    for place in (folder, outside):
        file = place / "big.o"
        with file.open("rb") as opened:
            assert (file.stat().st_size, hashlib.file_digest(opened, "sha256").hexdigest()) == expected
        file.unlink()


def test_output_goes_on_where_a_killed_penstockd_stopped(lab: Lab, outside: Path) -> None:
    """SIGKILL in the midst of it: the next one fetches the rest, and no byte comes twice."""
    size, digest = digest_of_seq(MANY_LINES)
    half = MANY_LINES // 2
    script = f"#!/bin/sh\nseq 1 {half}; sleep 4; seq {half + 1} {MANY_LINES}\n"
    job_id = lab.sbatch(script, f"--output={outside}/many.o")
    file = outside / "many.o"
    semantics.wait_until(lambda: file.exists() and file.stat().st_size > 100_000, "output comes")
    os.kill(clusters.pid_of(lab, "penstockd"), signal.SIGKILL)
    lab.penstock("lab", "up", "--dir", str(lab.place.directory))
    assert semantics.record(lab, job_id, timeout=180) == semantics.Record("COMPLETED", "0:0")
    with file.open("rb") as opened:
        assert (file.stat().st_size, hashlib.file_digest(opened, "sha256").hexdigest()) == (size, digest)


def test_the_containers_log_shows_the_output_too(lab: Lab) -> None:
    """`kubectl logs` of a running job: what this job has written, not what its file held before."""
    folder = semantics.folder(lab)
    lab.run_as_user(("tee", str(folder / "o")), stdin="from before\n")
    script = "#!/bin/sh\necho live\nuntil [ -e go ]; do sleep 0.1; done\n"
    job_id = lab.sbatch(script, "--output=o", "--open-mode=append", cwd=folder)
    semantics.wait_for_text(folder / "o", "live\n")
    (pod,) = semantics.pods(lab, job_id)
    argv = ("kubectl", "logs", "-n", pod["metadata"]["namespace"], pod["metadata"]["name"])
    # A kubelet may know for a moment less than the file: it calls the container waiting, and kubectl fails.
    semantics.wait_until(lambda: lab.run(argv, check=False).stdout == "live\n", "the log shows the output")
    lab.run_as_user(("touch", str(folder / "go")))
    assert semantics.record(lab, job_id) == semantics.Record("COMPLETED", "0:0")


def test_fast_jobs_lose_no_output(lab: Lab, outside: Path) -> None:
    """Twenty jobs that write a burst without a last newline and exit."""
    script = f"#!/bin/bash\nprintf '%0{MOST_OF_A_PIPE}d' $SLURM_ARRAY_TASK_ID\n"
    job_id = lab.sbatch(script, "--array=1-20", f"--output={outside}/%a.o")
    semantics.records(lab, (f"{job_id}_{task}" for task in range(1, 21)))
    for task in range(1, 21):
        assert (outside / f"{task}.o").read_text() == f"{task:0{MOST_OF_A_PIPE}d}"


@pytest.mark.parametrize(
    ("error", "out_text", "error_text"),
    [("e", "out\n", "err\n"), ("shared", "out\n", "err\n"), ("o", "out\nerr\n", "out\nerr\n")],
    ids=["both-outside", "error-on-the-nas", "one-file-outside"],
)
def test_streams_outside_the_shared_folders(
    lab: Lab, outside: Path, error: str, out_text: str, error_text: str
) -> None:
    """Each gets what belongs to it, whoever writes it."""
    error_file = semantics.folder(lab) / "e" if error == "shared" else outside / error
    job_id = lab.sbatch(HELLO, f"--output={outside}/o", f"--error={error_file}")
    semantics.record(lab, job_id)
    assert ((outside / "o").read_text(), error_file.read_text()) == (out_text, error_text)


def test_only_the_error_file_is_outside(lab: Lab, outside: Path) -> None:
    """The pod writes its stdout itself, its stderr is streamed."""
    folder = semantics.folder(lab)
    job_id = lab.sbatch(HELLO, f"--output={folder}/o", f"--error={outside}/e")
    semantics.record(lab, job_id)
    assert ((folder / "o").read_text(), (outside / "e").read_text()) == ("out\n", "err\n")


def test_a_missing_output_folder_is_as_in_plain_slurm(lab: Lab) -> None:
    """Either Slurm cannot open the file and nothing runs, or it makes the folder: in a pod or not."""
    folders = {name: semantics.folder(lab) for name in (semantics.PLAIN, semantics.PODS)}
    row = Row(script="#!/bin/sh\ntouch ran\n", options=("--output=missing/o",))
    jobs = {name: semantics.submit(lab, row, partition=name, cwd=cwd) for name, cwd in folders.items()}
    found = semantics.records(lab, jobs.values())
    assert found[jobs[semantics.PODS]] == found[jobs[semantics.PLAIN]]
    time.sleep(0.2)
    left = {name: sorted(path.name for path in cwd.rglob("*")) for name, cwd in folders.items()}
    assert left[semantics.PODS] == left[semantics.PLAIN]
    assert ("ran" in left[semantics.PODS]) == (found[jobs[semantics.PODS]].state == "COMPLETED")
