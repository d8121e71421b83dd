"""A job's pods by the number that sbatch printed: the commands of a guide, typed as they stand there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e import semantics

from penstock_lab import testing

Lab = testing.RunningLab
LABELS = "-o=custom-columns=:.metadata.name,:.metadata.labels.array-job-id,:.metadata.labels.array-task-id"


@pytest.fixture(scope="module")
def running(lab: Lab) -> Iterator[str]:
    """A job on two nodes that has printed a line and goes on."""
    cwd = semantics.folder(lab)
    job_id = lab.sbatch("#!/bin/sh\necho up\nexec sleep 300\n", "-N2", f"--chdir={cwd}")
    try:
        semantics.wait_for_text(cwd / f"slurm-{job_id}.out", "up")
        yield job_id
    finally:
        lab.run(("scancel", job_id))
        semantics.record(lab, job_id)


def typed(lab: Lab, line: str, job_id: str) -> str:
    """What the line prints to the administrator, where USER is the job's owner and JOB_ID the job."""
    env = lab.env | {"JOB_ID": job_id, "USER": lab.user}
    return testing.run(("sh", "-c", line), env=env, timeout=60, check=True, cwd=lab.place.nas).stdout


def test_pods_are_found_by_the_jobs_number(lab: Lab, running: str) -> None:
    """All jobs' pods, and one job's, by labels that people remember."""
    mine = [f"slurm-job-{running}", f"slurm-job-{running}-n1"]
    everybodys = typed(lab, "kubectl get pods -l app=slurm-job -A", running)
    assert set(mine) <= {line.split()[1] for line in everybodys.split("\n") if line}
    own = typed(lab, "kubectl get pods -l job-id=$JOB_ID -A", running)
    assert [line.split()[1] for line in own.split("\n") if line][1:] == mine


def test_a_jobs_output_is_in_the_log_of_the_pod_that_has_its_number(lab: Lab, running: str) -> None:
    """For the administrator, and for its owner with rights of his own."""
    line = "kubectl logs slurm-job-$JOB_ID -n user-$USER"
    semantics.wait_until(lambda: typed(lab, line, running) == "up\n", "kubectl logs shows the output")
    assert lab.run_as_user(("sh", "-c", f"JOB_ID={running}; {line}")).stdout == "up\n"


def test_pods_of_array_tasks_are_found_by_the_number_that_sbatch_printed(lab: Lab) -> None:
    """Each task has a number of its own as well; the array's is on all of them."""
    array = lab.sbatch("#!/bin/sh\nexec sleep 300\n", "--array=3,5")
    try:
        line = f"kubectl get pods -l array-job-id=$JOB_ID -A --no-headers {LABELS}"
        semantics.wait_until(lambda: len(typed(lab, line, array).split()) == 6, "both tasks have a pod")
        rows = [row.split() for row in typed(lab, line, array).split("\n") if row.strip()]
        numbers = lab.run(("squeue", "-h", "-r", "-j", array, "-O", "JobID,ArrayTaskID")).stdout.split()
        names = {task: f"slurm-job-{number}" for number, task in zip(*[iter(numbers)] * 2, strict=True)}
        assert sorted(rows) == sorted([names[task], array, task] for task in ("3", "5"))
    finally:
        lab.run(("scancel", array))


def test_an_attempt_after_a_restart_has_a_name_of_its_own(lab: Lab) -> None:
    """The first one's pod may still be going when the second is made."""
    cwd = semantics.folder(lab)
    job_id = lab.sbatch("#!/bin/sh\necho up $SLURM_RESTART_COUNT\nexec sleep 300\n", f"--chdir={cwd}")
    try:
        semantics.wait_for_text(cwd / f"slurm-{job_id}.out", "up")
        lab.run(("scontrol", "requeue", job_id))
        lab.run(("scontrol", "update", f"jobid={job_id}", "starttime=now"))
        semantics.wait_for_text(cwd / f"slurm-{job_id}.out", "up 1")
        assert [pod["metadata"]["name"] for pod in semantics.pods(lab, job_id)] == [f"slurm-job-{job_id}-r1"]
    finally:
        lab.run(("scancel", job_id))
