"""Arrays, dependencies, holds, requeues and requests: Slurm's queue works as ever when its jobs are pods."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from tests.e2e import semantics
from tests.e2e.semantics import Record

from penstock.kube import podview

Lab = semantics.Lab
DONE = Record("COMPLETED", "0:0")
WAIT_FOR_GO = "until [ -e go ]; do sleep 0.1; done\n"
STAMPED = "#!/bin/bash\ndate +%s.%N >begin-$SLURM_JOB_ID\nsleep 0.6\ndate +%s.%N >end-$SLURM_JOB_ID\n"


def most_at_once(folder: Path) -> int:
    """How many of the jobs that stamped their begin and end were there at the same time."""
    begins = [(float(path.read_text()), 1) for path in folder.glob("begin-*")]
    ends = [(float(path.read_text()), -1) for path in folder.glob("end-*")]
    return max(itertools.accumulate(step for _, step in sorted(begins + ends)))


def test_an_array_keeps_to_its_limit(lab: Lab) -> None:
    """%2 means two tasks at a time, and all of them in the end."""
    folder = semantics.folder(lab)
    job_id = lab.sbatch(STAMPED, "--array=1-6%2", cwd=folder)
    ended = semantics.records(lab, (f"{job_id}_{task}" for task in range(1, 7)))
    assert set(ended.values()) == {DONE}
    assert most_at_once(folder) <= 2
    assert len(list(folder.glob("end-*"))) == 6


def test_one_task_can_be_cancelled(lab: Lab) -> None:
    """scancel N_2 ends that task alone; its neighbours never notice."""
    folder = semantics.folder(lab)
    job_id = lab.sbatch(f"#!/bin/sh\ntouch up-$SLURM_ARRAY_TASK_ID\n{WAIT_FOR_GO}", "--array=1-3", cwd=folder)
    semantics.wait_until(lambda: len(list(folder.glob("up-*"))) == 3, "all tasks run")
    lab.run_as_user(("scancel", f"{job_id}_2"))
    assert semantics.record(lab, f"{job_id}_2").state == "CANCELLED"
    lab.run_as_user(("touch", str(folder / "go")))
    ended = semantics.records(lab, (f"{job_id}_1", f"{job_id}_3"))
    assert set(ended.values()) == {DONE}


def test_dependencies(lab: Lab) -> None:
    """afterok, afternotok and afterany look at the container's exit code, as Slurm does at the script's."""
    folder = semantics.folder(lab)
    good = lab.sbatch(f"#!/bin/sh\n{WAIT_FOR_GO}exit 0\n", cwd=folder)
    bad = lab.sbatch(f"#!/bin/sh\n{WAIT_FOR_GO}exit 3\n", cwd=folder)

    def after(condition: str) -> str:
        options = (f"--dependency={condition}", "--kill-on-invalid-dep=yes")
        return lab.sbatch("#!/bin/sh\ntrue\n", *options, cwd=folder)

    runs = [after(f"afterok:{good}"), after(f"afternotok:{bad}"), after(f"afterany:{good}:{bad}")]
    never = [after(f"afterok:{bad}"), after(f"afternotok:{good}")]
    assert {lab.job(job_id)["JobState"] for job_id in (*runs, *never)} == {"PENDING"}
    lab.run_as_user(("touch", str(folder / "go")))
    ended = semantics.records(lab, (*runs, *never))
    assert {ended[job_id] for job_id in runs} == {DONE}
    assert {ended[job_id].state for job_id in never} == {"CANCELLED"}


def test_a_singleton_waits_for_its_namesake(lab: Lab) -> None:
    """Jobs of one name run one after the other."""
    folder = semantics.folder(lab)
    options = (f"--job-name={folder.name}", "--dependency=singleton")
    jobs = [lab.sbatch(STAMPED, *options, cwd=folder) for _ in range(3)]
    assert set(semantics.records(lab, jobs).values()) == {DONE}
    assert most_at_once(folder) == 1


def test_hold_and_release(lab: Lab) -> None:
    """A held job has no pod until its owner releases it."""
    folder = semantics.folder(lab)
    script = "#!/bin/sh\necho ran\n"
    at_submit = lab.sbatch(script, "--hold", cwd=folder)
    later = lab.sbatch(script, "--begin=now+60", cwd=folder)
    lab.run_as_user(("scontrol", "hold", later))
    lab.run_as_user(("scontrol", "update", f"JobId={later}", "StartTime=now"))
    for job_id in (at_submit, later):
        assert lab.job(job_id)["Reason"] == "JobHeldUser"
        assert semantics.pods(lab, job_id) == []
    lab.run_as_user(("scontrol", "release", at_submit, later))
    assert set(semantics.records(lab, (at_submit, later)).values()) == {DONE}


def test_test_only_submits_nothing(lab: Lab) -> None:
    """--test-only answers when the job could start, or why it never can, with plain Slurm's words."""
    answers = {}
    for partition in (semantics.PLAIN, semantics.PODS):
        argv = ("sbatch", "--test-only", f"--partition={partition}")
        possible = lab.run_as_user((*argv, "-n2"), stdin="#!/bin/sh\ntrue\n", check=False)
        impossible = lab.run_as_user((*argv, "-n2000"), stdin="#!/bin/sh\ntrue\n", check=False)
        words = rf"using 2 processors on nodes \S+ in partition {partition}$"
        assert re.search(words, possible.stderr, re.MULTILINE)
        answers[partition] = (possible.returncode, impossible.returncode, impossible.stderr)
    assert answers[semantics.PODS] == answers[semantics.PLAIN]


OWN_NODE = "n3"  # of the job that shares its node with nobody
REQUESTS: dict[str, tuple[tuple[str, ...], list[tuple[int, int]]]] = {
    "one-cpu": (("-n1",), [(1, 0)]),
    "cpus-per-task": (("-N1", "-n2", "--cpus-per-task=3"), [(6, 0)]),
    "gres": (("--gres=gpu:2",), [(1, 2)]),
    "gpus": (("-N1", "--gpus=2"), [(1, 2)]),
    "gpus-per-node": (("-N2", "--gpus-per-node=1"), [(1, 1), (1, 1)]),
    "gpus-per-task": (("-N1", "-n2", "--gpus-per-task=1"), [(2, 2)]),
    "gpus-per-socket": (("-N1", "--sockets-per-node=1", "--gpus-per-socket=1"), [(1, 1)]),
    "exclusive": (("-N1", "--exclusive", f"--nodelist={OWN_NODE}"), [(8, 4)]),
}


@pytest.fixture(scope="module")
def requested(lab: Lab) -> dict[str, list[tuple[int, int]]]:
    """CPUs and GPUs of every pod of every row, all run at once."""
    folder = semantics.folder(lab)
    script = f"#!/bin/sh\n{WAIT_FOR_GO}"
    jobs = {}
    for name, (options, _) in REQUESTS.items():
        apart = () if name == "exclusive" else (f"--exclude={OWN_NODE}",)
        jobs[name] = lab.sbatch(script, "--mem=100M", *apart, *options, cwd=folder)
    try:
        for job_id in jobs.values():
            lab.wait_for(job_id, "RUNNING")
        for name, job_id in jobs.items():
            wanted = len(REQUESTS[name][1])
            semantics.wait_until(lambda: len(semantics.pods(lab, job_id)) >= wanted, f"pods of {name}")  # noqa: B023  # now
        return {name: _amounts(lab, job_id) for name, job_id in jobs.items()}
    finally:
        lab.run(("scancel", *jobs.values()))


def _amounts(lab: Lab, job_id: str) -> list[tuple[int, int]]:
    amounts = [podview.amount(semantics.requests(pod)) for pod in semantics.pods(lab, job_id)]
    return [(amount.millicpus // 1000, amount.gpus) for amount in amounts]


@pytest.mark.parametrize("name", REQUESTS)
def test_pods_ask_for_what_slurm_allocated(requested: dict[str, list[tuple[int, int]]], name: str) -> None:
    """CPUs and GPUs of each node's share, for every way to ask for them."""
    assert requested[name] == REQUESTS[name][1]


COUNTING = (
    "#!/bin/sh\necho attempt ${SLURM_RESTART_COUNT:-0} >>log-$SLURM_JOB_ID\n"
    '[ -n "$SLURM_RESTART_COUNT" ] || sleep 60\n'
)
SECOND_TIME = '#!/bin/sh\n[ -n "$SLURM_RESTART_COUNT" ]\n'


def test_requeue_keeps_the_id_and_counts(lab: Lab) -> None:
    """scontrol requeue and requeuehold by the owner, of running and ended jobs: same id, next count."""
    folder = semantics.folder(lab)
    running, held, fixed = (
        lab.sbatch(COUNTING, option, cwd=folder) for option in ("--requeue", "--requeue", "--no-requeue")
    )
    ended = lab.sbatch(SECOND_TIME, cwd=folder)
    plain = lab.sbatch(SECOND_TIME, f"--partition={semantics.PLAIN}", cwd=folder)
    assert set(semantics.records(lab, (ended, plain)).values()) == {Record("FAILED", "1:0")}
    for job_id in (running, held, fixed):
        semantics.wait_for_text(folder / f"log-{job_id}", "attempt 0")
    for job_id in (ended, plain):
        lab.wait_for(job_id, "FAILED")
    lab.run_as_user(("scontrol", "requeue", f"{running},{ended},{plain}"))
    lab.run_as_user(("scontrol", "requeuehold", held))
    assert lab.run_as_user(("scontrol", "requeue", fixed), check=False).returncode != 0
    lab.run(("scancel", fixed))
    semantics.wait_until(lambda: lab.job(held)["Reason"] == "job_requeued_in_held_state", "the job is held")
    semantics.wait_until(lambda: semantics.pods(lab, held) == [], "the held job has no pod")
    lab.run_as_user(("scontrol", "release", held))
    for job_id in (running, held, ended, plain):
        lab.wait_for(job_id, "COMPLETED")
        assert lab.job(job_id)["Restarts"] == "1"
    for job_id in (running, held):
        assert (folder / f"log-{job_id}").read_text() == "attempt 0\nattempt 1\n"


def test_exclusive_shares_its_node_with_nobody(lab: Lab) -> None:
    """A job that names the same node starts only when the exclusive one has gone."""
    folder = semantics.folder(lab)
    alone = lab.sbatch(STAMPED, "--exclusive", "--nodelist=n3", cwd=folder)
    other = lab.sbatch(STAMPED, "--nodelist=n3", cwd=folder)
    assert set(semantics.records(lab, (alone, other)).values()) == {DONE}
    assert most_at_once(folder) == 1


INSIDE = "#!/bin/sh\nsrun --ntasks=2 hostname\necho $?\n"


def test_srun_in_a_script_is_hinted_at_and_says_what_is_wrong(lab: Lab) -> None:
    """A line at sbatch, and words of the call's."""
    folder = semantics.folder(lab)
    (folder / "s").write_text(INSIDE)
    argv = ("sbatch", "--parsable", "--export=PATH=/nonexistent", "--output=o", str(folder / "s"))
    result = lab.run_as_user(argv, cwd=folder)
    assert "line 2 of the script calls srun, which does not run in pods yet" in result.stderr
    assert semantics.record(lab, result.stdout.strip()) == DONE
    text = (folder / "o").read_text()
    assert "srun: error: penstock: job steps (srun) do not run in pods yet" in text
    assert text.endswith("\n1\n")


def test_steps_from_outside_are_refused(lab: Lab) -> None:
    """srun into a running job fails in words, and the job goes on; tests/e2e/test_attacks.py tries harder."""
    folder = semantics.folder(lab)
    job_id = lab.sbatch(f"#!/bin/sh\ntouch up\n{WAIT_FOR_GO}", cwd=folder)
    semantics.wait_until((folder / "up").exists, "the job runs")
    result = lab.run_as_user(("srun", f"--jobid={job_id}", "--overlap", "true"), check=False, cwd=folder)
    assert "penstock: job steps (srun) do not run in pods yet" in result.stderr
    assert result.returncode == 1
    lab.run_as_user(("touch", str(folder / "go")))
    assert semantics.record(lab, job_id) == DONE


def test_input_and_umask(lab: Lab) -> None:
    """--input is the script's stdin, files get the submitter's mode, as in plain Slurm."""
    folder = semantics.folder(lab)
    (folder / "in.txt").write_text("from the file\n")
    script = folder / "s"
    script.write_text("#!/bin/sh\numask\ncat\n")
    jobs = []
    for partition in (semantics.PLAIN, semantics.PODS):
        inner = (
            f"umask 027; exec sbatch --parsable -p {partition} --input=in.txt --output={partition} {script}"
        )
        jobs.append(lab.run_as_user(("sh", "-c", inner), cwd=folder).stdout.strip())
    semantics.records(lab, jobs)
    assert (folder / semantics.PODS).read_text() == "0027\nfrom the file\n"
    assert (folder / semantics.PODS).read_text() == (folder / semantics.PLAIN).read_text()


def test_a_script_from_stdin(lab: Lab) -> None:
    """sbatch without a file reads the script from its own input; its directives count."""
    folder = semantics.folder(lab)
    script = "#!/bin/sh\n#SBATCH --output=chosen\n#SBATCH -J named\necho $SLURM_JOB_NAME\n"
    job_id = lab.run_as_user(("sbatch", "--parsable"), stdin=script, cwd=folder).stdout.strip()
    assert semantics.record(lab, job_id) == DONE
    assert (folder / "chosen").read_text() == "named\n"
