"""Jobs for which Kubernetes has no room now: they wait, whatever their owners say of running again, and go
where there is room.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from tests.e2e import clusters, semantics

from penstock.slurm import hostlists

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


def test_a_comment_says_why_a_job_waits_and_is_its_owners_when_it_runs(lab: Lab) -> None:
    """Of two jobs, one with a comment of its own, in slurmctld, in the accounting and in `show`."""
    folder, options = semantics.folder(lab), ("--gres=gpu:2", "--nodelist=n2", "--chdir")
    with clusters.foreign_pod(lab, "holder-said", node="n2", gpus=3):
        plain = lab.sbatch(ONCE, *options, str(folder))
        own = lab.sbatch(ONCE, *options, str(folder), "--comment=run 3 of 5")
        for job_id in (plain, own):
            semantics.wait_until(lambda: "holder-said" in semantics.field(lab, job_id, "Comment"), "refused")  # noqa: B023
        assert semantics.field(lab, own, "Comment").endswith(" [penstock] run 3 of 5")
    for job_id, comment in ((plain, ""), (own, "run 3 of 5")):
        assert semantics.record(lab, job_id) == semantics.Record("FAILED", "7:0")
        assert semantics.field(lab, job_id, "Comment") == comment
        assert lab.accounted(job_id, "Comment") == [comment]
        (shown,) = json.loads(lab.penstock("show", job_id, "--format", "json").stdout)["jobs"]
        assert shown["comment"] == comment


def test_a_job_goes_to_the_node_that_has_room(lab: Lab) -> None:
    """Slurm offers n1 first, where it sees four GPUs and others have three of them."""
    folder = semantics.folder(lab)
    with contextlib.ExitStack() as held:
        for node in ("n1", "n2", "n4"):
            held.enter_context(clusters.foreign_pod(lab, f"holder-{node}", node=node, gpus=3))
        job_id = lab.sbatch(ONCE, "--gres=gpu:2", cwd=folder)
        began = time.monotonic()
        semantics.wait_for_text(folder / f"log-{job_id}", "ran", timeout=60)
        assert time.monotonic() - began < 15
    assert semantics.record(lab, job_id) == semantics.Record("FAILED", "7:0")


def test_the_owners_own_exclusions_stay(lab: Lab) -> None:
    """Ours go when there is room, theirs never."""
    folder = semantics.folder(lab)
    filler = lab.sbatch("#!/bin/sh\nsleep 600\n", "--nodelist=n4", "--gres=gpu:4", cwd=folder)
    lab.wait_for(filler, "RUNNING")
    with contextlib.ExitStack() as held:
        for node in ("n1", "n2"):
            held.enter_context(clusters.foreign_pod(lab, f"own-{node}", node=node, gpus=4))
        job_id = lab.sbatch(ONCE, "--gres=gpu:1", "--exclude=n3", cwd=folder)
        semantics.wait_until(lambda: excluded(lab, job_id) == {"n1", "n2", "n3"}, "kept from both")
        assert lab.job(job_id)["JobState"] == "PENDING"
    semantics.wait_for_text(folder / f"log-{job_id}", "ran", timeout=60)
    lab.run_as_user(("scancel", filler))
    assert "n3" in excluded(lab, job_id) != {"n1", "n2", "n3"}


def excluded(lab: Lab, job_id: str) -> set[str]:
    return set(hostlists.expand(lab.job(job_id)["ExcNodeList"]))


def test_thirty_jobs_start_as_room_comes(lab: Lab) -> None:
    """Three of four nodes are others'; one job after the other runs on the fourth, and on the second within
    fifteen seconds of its being free.
    """
    folder = semantics.folder(lab)
    script = "#!/bin/sh\ndate +%s.%N >>starts\nhostname >>$SLURM_JOB_NODELIST-nodes\nsleep 1\n"
    with contextlib.ExitStack() as held, contextlib.ExitStack() as leaving:
        leaving.enter_context(clusters.foreign_pod(lab, "thirty-n2", node="n2", gpus=4))
        for node in ("n1", "n4"):
            held.enter_context(clusters.foreign_pod(lab, f"thirty-{node}", node=node, gpus=3))
        jobs = [lab.sbatch(script, "--gres=gpu:2", "--mem=100M", cwd=folder) for _ in range(30)]
        semantics.wait_until(lambda: len(starts(folder)) >= 4, "four have run on the free node", timeout=60)
        leaving.close()
        free = time.time()
        semantics.wait_until((folder / "n2-nodes").exists, "one runs on the second", timeout=60)
        assert time.time() - free < 15
        found = semantics.records(lab, jobs, timeout=240)
    assert set(found.values()) == {semantics.Record("COMPLETED", "0:0")}
    assert len(starts(folder)) == 30
    gaps = [later - earlier for earlier, later in zip(starts(folder), starts(folder)[1:], strict=False)]
    assert max(gaps) < 15, f"nobody started for {max(gaps):.1f} s although there was room"
    assert not (folder / "n1-nodes").exists()


def test_a_gang_that_was_refused_once_is_requeued_as_slurm_does_it(lab: Lab) -> None:
    """It waits until its old credential has expired, though the node that it was kept from is free again:
    slurmd runs no Epilog on nodes without a step for a job that begins again in the second of its end there.
    """
    folder = semantics.folder(lab)
    script = "#!/bin/sh\necho ${SLURM_RESTART_COUNT:-0} >>ran\nexec sleep 600\n"
    with clusters.foreign_pod(lab, "holder-gang", node="n1", gpus=3):
        job_id = lab.sbatch(script, "--nodes=3", "--gres=gpu:2", cwd=folder)
        semantics.wait_for_text(folder / "ran", "1")
        assert excluded(lab, job_id) == {"n1"}
    lab.run_as_user(("scontrol", "requeue", job_id))
    lab.wait_for(job_id, "PENDING")
    begins = lab.job(job_id)["EligibleTime"]
    semantics.wait_until(lambda: lab.job(job_id)["ExcNodeList"] == "(null)", "kept from nothing")
    assert lab.job(job_id)["EligibleTime"] == begins
    semantics.wait_for_text(folder / "ran", "2", timeout=60)
    lab.run_as_user(("scancel", job_id))
    lab.wait_for(job_id, "CANCELLED")
    assert semantics.pods(lab, job_id) == []


def starts(folder: Path) -> list[float]:
    """When scripts began."""
    file = folder / "starts"
    return sorted(map(float, file.read_text().split())) if file.exists() else []
