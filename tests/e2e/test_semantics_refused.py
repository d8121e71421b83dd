"""All pods of a job or none, when the cluster refuses one of them: by policy, by its node, by its kubelet."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e import clusters, semantics
from tests.e2e.semantics import Record

Lab = semantics.Lab
NO = "no such rank on this site"


@contextlib.contextmanager
def held_up(lab: Lab, folder: Path, *options: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """An admitted gang without pods, because the slurmd of its first node stands still until the yielded
    function is called: some seconds at most, or slurmctld gives up.
    """
    script = "#!/bin/sh\necho ran-${SLURM_RESTART_COUNT:-0}\n"
    first = next(option for option in options if option.startswith("--nodelist=")).partition("=")[2][:2]
    with clusters.stopped(lab, f"slurmd-{first}") as go_on:
        job_id = lab.sbatch(script, "--output=o", "--open-mode=append", *options, cwd=folder)
        lab.wait_for(job_id, "RUNNING")
        yield job_id, go_on


def comment_with(lab: Lab, job_id: str, words: str) -> None:
    semantics.wait_until(
        lambda: words in semantics.field(lab, job_id, "Comment"), f"job {job_id} says {words!r}", timeout=90
    )


def check_nothing_ran(lab: Lab, job_id: str, output: Path, words: str) -> None:
    """No container of the script, no pod, no Secret; the reason is in the output."""
    semantics.wait_until(lambda: not semantics.pods(lab, job_id), "no pod is left")
    # The launcher writes it, and Slurm's comment does not wait for that.
    semantics.wait_for_text(output, words)
    assert "ran-" not in output.read_text()
    argv = ("kubectl", "get", "secrets", "-A", "-l", f"penstock.dev/job-id={job_id}", "-o", "name")
    semantics.wait_until(lambda: lab.run(argv).stdout == "", "no Secret is left")


def check_ran_once(lab: Lab, job_id: str, output: Path) -> None:
    """In the end, under the number of the attempt that Slurm counts; it may have been refused before."""
    lab.wait_for(job_id, "COMPLETED", timeout=240)
    restarts = int(lab.job(job_id)["Restarts"])
    assert restarts >= 1
    assert [line for line in output.read_text().splitlines() if "ran-" in line] == [f"ran-{restarts}"]


def test_pod_refused_by_policy_fails_the_job(lab: Lab) -> None:
    """Policy is not capacity: no retry, the policy's message, nothing left."""
    folder = semantics.folder(lab)
    with clusters.refusing_rank(lab, 1, NO):
        job_id = lab.sbatch("#!/bin/sh\necho ran-0\n", "-N2", "--output=o", cwd=folder)
        assert semantics.record(lab, job_id) == Record("FAILED", "1:0")
        check_nothing_ran(lab, job_id, folder / "o", NO)
    assert NO in semantics.field(lab, job_id, "Comment")
    assert lab.job(job_id)["Restarts"] == "0"


@pytest.fixture
def folder(lab: Lab) -> Path:
    return semantics.folder(lab)


def test_a_node_that_leaves_between_admission_and_binding(lab: Lab, folder: Path) -> None:
    """The job was admitted there; it goes back to the queue and runs when the node is back."""
    with held_up(lab, folder, "--nodelist=n3,n4") as (job_id, go_on), clusters.without_node(lab, "n3"):
        go_on()
        comment_with(lab, job_id, "node n3 has left Kubernetes")
        check_nothing_ran(lab, job_id, folder / "o", "node n3 has left Kubernetes")
    check_ran_once(lab, job_id, folder / "o")


def test_a_kubelet_that_refuses_one_of_four(lab: Lab, folder: Path) -> None:
    """Somebody took the GPUs of one node after the job was admitted: requeued, and no pod runs meanwhile."""
    with (
        held_up(lab, folder, "--nodelist=n1,n2,n3,n4", "--gpus-per-node=1") as (job_id, go_on),
        clusters.foreign_pod(lab, "greedy", node="n2", gpus=4),
    ):
        go_on()
        comment_with(lab, job_id, "OutOfnvidia.com/gpu")
        check_nothing_ran(lab, job_id, folder / "o", "OutOfnvidia.com/gpu")
    check_ran_once(lab, job_id, folder / "o")


def test_reserved_room_is_not_given_away(lab: Lab, folder: Path) -> None:
    """A starting gang has no pods yet, but no other job gets its GPUs."""
    with (
        clusters.foreign_pod(lab, "notebook", node="n3", gpus=2),
        held_up(lab, folder, "--nodelist=n2,n3", "--gpus-per-node=2") as (gang, go_on),
    ):
        late = lab.sbatch(
            "#!/bin/sh\necho ran\n", "--nodelist=n3", "--gres=gpu:2", "--output=late.o", cwd=folder
        )
        semantics.wait_until(
            lambda: semantics.field(lab, late, "Comment") or (folder / "late.o").exists(), "the job is judged"
        )
        assert "waits for gpu on n3" in semantics.field(lab, late, "Comment")
        go_on()
        lab.wait_for(gang, "COMPLETED", timeout=240)
    lab.run(("scancel", late))
    assert "ran-0\n" in (folder / "o").read_text()
