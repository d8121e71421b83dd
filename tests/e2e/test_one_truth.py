"""What `explain` shows, what penstockd makes and what the results say are the same; `penstock check` agrees
with how a job ended while its pod is still there; and what Slurm has ended has ended for all of Penstock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e import semantics
from tests.e2e.test_results import results_of

from penstock.render import yamltext
from penstock.site import yamlreader
from penstock_lab import testing

Lab = testing.RunningLab
IMAGE = "docker.io/lab/host-userland:1"
"""Another name of the lab's default image."""
TOLERATION = {"key": "example.org/night", "operator": "Exists"}
STAY = "#!/bin/sh\nuntil [ -e end ]; do sleep 0.2; done\n"
HOLD = "example.org/hold"


@pytest.fixture(scope="module")
def chosen() -> Iterator[Lab]:
    """A lab whose partition cpu has an image and a toleration of its own; its pods pull with a Secret."""
    with testing.temporary_lab() as lab:
        document: dict[str, Any] = dict(yamlreader.read(lab.place.site_yaml.read_bytes()).data)
        document["registry"]["pull_secrets"] = ["regcred"]
        cpu = document["partitions"]["cpu"]
        cpu["image"], cpu["tolerations"] = IMAGE, [{"key": TOLERATION["key"]}]
        lab.place.site_yaml.write_text(yamltext.document(document) + "\n")
        lab.penstock("apply", "--yes", "--site", str(lab.place.site_yaml))
        lab.penstock("lab", "restart", "penstockd")
        yield lab


def made(lab: Lab, job_id: str) -> dict[str, Any]:
    testing.until(lambda: semantics.pods(lab, job_id))
    (pod,) = semantics.pods(lab, job_id)
    return pod


def test_partition_image_is_shown_used_and_recorded(chosen: Lab) -> None:
    """By explain, in the pod and in the summary; so are tolerations and pull Secrets."""
    lab, folder = chosen, semantics.folder(chosen)
    (folder / "job.sh").write_text(STAY)
    options = ("--partition=cpu", "--time=5")
    asked = ("penstock", "explain", "--format", "json", "job.sh", *options)
    shown = lab.run_as_user(asked, cwd=folder).stdout
    job_id = lab.sbatch(STAY, *options, "--output=o", cwd=folder)
    pod = made(lab, job_id)
    (planned,) = json.loads(shown)["pods"]
    for spec in (planned["spec"], pod["spec"]):
        assert spec["containers"][0]["image"] == IMAGE
        assert TOLERATION in spec["tolerations"]
        assert spec["imagePullSecrets"] == [{"name": "regcred"}]
    (folder / "end").touch()
    assert semantics.record(lab, job_id).state == "COMPLETED"
    assert results_of(lab, job_id).summary["image"] == IMAGE


def test_check_agrees_with_a_signal_while_the_pod_lingers(lab: Lab) -> None:
    """A finalizer keeps the pod, whose last words have more lines than the signal."""
    folder = semantics.folder(lab)
    job_id = lab.sbatch(STAY + "kill -TERM $$\n", "--output=o", cwd=folder)
    pod = made(lab, job_id)["metadata"]
    named = ("pod", pod["name"], "-n", pod["namespace"])

    def finalizers(names: list[str]) -> None:
        patch = json.dumps({"metadata": {"finalizers": names}})
        lab.run(("kubectl", "patch", *named, "--type=merge", "--patch", patch))

    finalizers([HOLD])
    try:
        (folder / "end").touch()
        semantics.wait_until(lambda: lab.job(job_id)["ExitCode"] == "0:15", "Slurm has the signal")
        semantics.wait_until(
            lambda: semantics.pods(lab, job_id)[0]["metadata"].get("deletionTimestamp"), "the pod is to go"
        )
        lab.check()
    finally:
        finalizers([])
    assert semantics.record(lab, job_id).code == "0:15"


def test_job_that_missed_its_deadline_has_ended(lab: Lab) -> None:
    """DEADLINE is an end: `show` says so, and for what it would wait no longer."""
    folder = semantics.folder(lab)
    whole = ("--nodelist=n4", "--gres=gpu:4", "--output=/dev/null")
    filler = lab.sbatch(STAY, *whole, cwd=folder)
    lab.wait_for(filler, "RUNNING")
    job_id = lab.sbatch("#!/bin/sh\n", *whole, "--time=1", "--deadline=now+65", cwd=folder)
    lab.wait_for(job_id, "DEADLINE", timeout=180)
    (folder / "end").touch()
    (shown,) = json.loads(lab.penstock("show", job_id, "--format", "json").stdout)["jobs"]
    assert (shown["state"], shown["reason"]) == ("DEADLINE", None)
    assert shown["ended"] is not None
    assert semantics.record(lab, filler).state == "COMPLETED"
