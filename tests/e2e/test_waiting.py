"""Jobs for which Kubernetes has no room now: they wait, whatever their owners say of running again, and go
where there is room.
"""

from __future__ import annotations

from tests.e2e import clusters, semantics

Lab = semantics.Lab
ONCE = "#!/bin/sh\necho ran >>log-$SLURM_JOB_ID\nexit 7\n"


def requeue(lab: Lab, job_id: str) -> str:
    return lab.job(job_id)["Requeue"]


def test_a_job_that_may_not_run_twice_waits_like_any_other(lab: Lab) -> None:
    """Slurm cancels a job that PrologSlurmctld refuses and that may not be requeued. Once it runs, the word
    of its owner holds.
    """
    folder = semantics.folder(lab)
    with clusters.foreign_pod(lab, "holder-once", node="n2", gpus=3):
        options = ("--no-requeue", "--gres=gpu:2", "--nodelist=n2")
        job_id = lab.sbatch(ONCE.replace("exit", "sleep 2; exit"), *options, cwd=folder)
        semantics.wait_until(lambda: "holder-once" in semantics.field(lab, job_id, "Comment"), "refused")
        lab.wait_for(job_id, "PENDING")
    semantics.wait_for_text(folder / f"log-{job_id}", "ran")
    assert requeue(lab, job_id) == "0"
    assert semantics.record(lab, job_id) == semantics.Record("FAILED", "7:0")
    assert (folder / f"log-{job_id}").read_text() == "ran\n"


def test_an_owner_may_change_their_mind_while_the_job_waits(lab: Lab) -> None:
    folder = semantics.folder(lab)
    with clusters.foreign_pod(lab, "holder-mind", node="n2", gpus=3):
        job_id = lab.sbatch(ONCE, "--requeue", "--gres=gpu:2", "--nodelist=n2", "--begin=now+5", cwd=folder)
        lab.run_as_user(("scontrol", "update", f"JobId={job_id}", "Requeue=0"))
        semantics.wait_until(lambda: "holder-mind" in semantics.field(lab, job_id, "Comment"), "refused")
        lab.wait_for(job_id, "PENDING")
    assert semantics.record(lab, job_id) == semantics.Record("FAILED", "7:0")
    assert requeue(lab, job_id) == "0"
