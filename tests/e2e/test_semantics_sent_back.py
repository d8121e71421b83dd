"""Jobs that lose their node: back to the queue under their id, with the reason in words, or NODE_FAIL.

Slurm lets a job that was sent back wait for twelve seconds, so every node of the lab is lost at once, each in
its own way, and each test reads what became of the job that was there.
"""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import pytest
from tests.e2e import clusters, semantics

Lab = semantics.Lab
DRAINED, REFUSING, DOWN, GONE = "n1", "n2", "n3", "n4"
SCRIPT = (
    "#!/bin/sh\necho attempt-${SLURM_RESTART_COUNT:-0} >>log-$SLURM_JOB_ID\n"
    '[ -n "$SLURM_RESTART_COUNT" ] || sleep 100\n'
)


@dataclasses.dataclass(frozen=True)
class SentBack:
    """What a job has left: why it went back, and what it did."""

    comment: str
    log: str
    restarts: str
    state: str


@pytest.fixture(scope="module")
def jobs(lab: Lab) -> dict[str, SentBack]:
    """A job on each node, which is drained, refuses, goes down in Slurm, leaves Kubernetes; then all heal."""
    folder = semantics.folder(lab)
    with contextlib.ExitStack() as healing:
        found = _lose_all(lab, healing, folder)
    return {name: _end(lab, job_id, comment, folder) for name, (job_id, comment) in found.items()}


def _lose_all(lab: Lab, healing: contextlib.ExitStack, folder: Path) -> dict[str, tuple[str, str]]:
    """Job and comment by node, as soon as all have been sent back."""
    healing.callback(lab.run, ("kubectl", "uncordon", DRAINED))
    healing.callback(lab.run, ("scontrol", "update", f"NodeName={DOWN}", "State=RESUME"), check=False)
    jobs = {node: lab.sbatch(SCRIPT, f"--nodelist={node}", cwd=folder) for node in (DRAINED, DOWN, GONE)}
    jobs["fixed"] = lab.sbatch(SCRIPT, f"--nodelist={DOWN}", "--no-requeue", cwd=folder)
    for job_id in jobs.values():
        semantics.wait_for_text(folder / f"log-{job_id}", "attempt-0", timeout=120)
    if not clusters.is_real():
        healing.enter_context(clusters.refusing_node(lab, REFUSING))
        jobs[REFUSING] = lab.sbatch(SCRIPT, f"--nodelist={REFUSING}", cwd=folder)
    healing.enter_context(clusters.without_node(lab, GONE))
    _collect_garbage(lab, jobs[GONE])
    lab.run(("scontrol", "update", f"NodeName={DOWN}", "State=DOWN", "Reason=test"))
    options = ("--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=100s")
    lab.run(("kubectl", "drain", DRAINED, *options))
    found = {}
    for name, job_id in jobs.items():
        if name != "fixed":
            # Not just once: the node that refuses does so again, while the others take their time.
            semantics.wait_until(lambda: lab.job(job_id)["Restarts"] != "0", f"{name} sent back")  # noqa: B023  # now
        found[name] = (job_id, semantics.field(lab, job_id, "Comment"))
    return found


def _collect_garbage(lab: Lab, job_id: str) -> None:
    """What a real control plane does with the pods of a node that is gone, but not for a minute."""
    for pod in semantics.pods(lab, job_id) if clusters.is_real() else ():
        meta = pod["metadata"]
        argv = (
            "kubectl",
            "delete",
            "pod",
            "-n",
            meta["namespace"],
            meta["name"],
            "--force",
            "--grace-period=0",
        )
        lab.run(argv)


def _end(lab: Lab, job_id: str, comment: str, folder: Path) -> SentBack:
    job = lab.wait_for(job_id, "COMPLETED", "FAILED", "NODE_FAIL", timeout=240)
    log = folder / f"log-{job_id}"
    return SentBack(comment, log.read_text() if log.exists() else "", job["Restarts"], job["JobState"])


@pytest.mark.parametrize(
    ("node", "words"),
    [(DRAINED, "vict"), (REFUSING, "OutOfcpu"), (DOWN, ""), (GONE, "node")],
    ids=["drained", "refusing", "down-in-slurm", "gone-from-kubernetes"],
)
def test_requeued_job_runs_again(jobs: dict[str, SentBack], node: str, words: str) -> None:
    """Same id, the reason said, and the second attempt ends well, under the number that Slurm gives it: a
    node that takes its time to heal sends the job back once more before it starts.
    """
    if node not in jobs:
        pytest.skip("a real kubelet refuses for a reason: test_semantics_refused.py")
    job = jobs[node]
    assert job.state == "COMPLETED"
    assert int(job.restarts) >= 1
    assert words in job.comment
    first = "" if node == REFUSING else "attempt-0\n"
    assert job.log == f"{first}attempt-{job.restarts}\n"


def test_without_requeue_it_is_a_node_failure(lab: Lab, jobs: dict[str, SentBack]) -> None:
    """--no-requeue: Slurm's own state for it, and no pod is left."""
    job = jobs["fixed"]
    assert (job.state, job.restarts, job.log) == ("NODE_FAIL", "0", "attempt-0\n")


def test_nodes_are_usable_and_clean_afterwards(lab: Lab, jobs: dict[str, SentBack]) -> None:
    """No node is drained and no pod of a job is left."""
    semantics.wait_until(lambda: not out_of_use(lab), "all nodes are up")
    argv = ("kubectl", "get", "pods", "-A", "-l", "app=slurm-job", "-o", "name")
    semantics.wait_until(lambda: lab.run(argv).stdout == "", "no pod is left")
    assert (out_of_use(lab), lab.run(argv).stdout) == (set(), "")


def out_of_use(lab: Lab) -> set[str]:
    """States of nodes on which nothing can start."""
    return {"drain", "down"} & set(lab.run(("sinfo", "-h", "-o", "%T")).stdout.replace("*", "").split())
