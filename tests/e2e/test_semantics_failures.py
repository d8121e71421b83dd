"""What goes wrong in Kubernetes is said in one line: in the job's stderr and in Slurm's comment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.e2e import clusters, semantics
from tests.e2e.semantics import Record

Lab = semantics.Lab
LOST = Record("FAILED", "1:0")
MISSING = "nas-hub.local:5407/lab/none:1"


@pytest.fixture(scope="module", autouse=True)
def nowhere(lab: Lab) -> tuple[str, Path]:
    """A job with a folder that is not on its node, and its folder: it takes a minute until that is an end."""
    folder = semantics.folder(lab)
    script = f"#!/bin/sh\n#K8S_MOUNT={folder}/nowhere:/data\ntrue\n"
    return lab.sbatch(script, "--output=o", cwd=folder), folder


def words(lab: Lab, job_id: str, output: Path) -> tuple[list[str], str]:
    """What penstock wrote into the job's output, and the comment."""
    lines = [line for line in output.read_text().splitlines() if line.startswith("penstock: ")]
    return [line.removeprefix("penstock: ") for line in lines], semantics.field(lab, job_id, "Comment")


def check_words(lab: Lab, job_id: str, output: Path, pattern: str) -> None:
    """One line that says it, the same in both places."""
    (line,), comment = words(lab, job_id, output)
    assert re.search(pattern, line), line
    assert comment == line


def test_an_image_that_cannot_be_pulled(lab: Lab) -> None:
    """The job fails at once instead of running for ever without running."""
    folder = semantics.folder(lab)
    with clusters.without_image(lab, MISSING):
        job_id = lab.sbatch(f"#!/bin/sh\n#K8S_IMAGE={MISSING}\ntrue\n", "--output=o", cwd=folder)
        assert semantics.record(lab, job_id, timeout=60) == LOST
    check_words(lab, job_id, folder / "o", f"^(ImagePullBackOff|ErrImagePull): .*{MISSING}")
    semantics.wait_until(lambda: not semantics.pods(lab, job_id), "no pod is left")


def test_an_image_without_a_shell(lab: Lab) -> None:
    """The agent cannot run: said in words, not in those of the container's runtime."""
    folder = semantics.folder(lab)
    job_id = lab.sbatch("#!/bin/sh\n#K8S_IMAGE=lab/pause:1\ntrue\n", "--output=o", cwd=folder)
    assert semantics.record(lab, job_id) == LOST
    check_words(
        lab, job_id, folder / "o", "^StartError: the image has no /bin/sh, which the job's agent needs$"
    )


def test_an_image_name_that_is_none(lab: Lab) -> None:
    """Said by us or by kubelet (InvalidImageName); nothing is retried."""
    folder = semantics.folder(lab)
    job_id = lab.sbatch("#!/bin/sh\n#K8S_IMAGE=Bad::Name\ntrue\n", "--output=o", cwd=folder)
    assert semantics.record(lab, job_id) == LOST
    check_words(lab, job_id, folder / "o", "^InvalidImageName: .*Bad::Name|#K8S_IMAGE: .*Name. is no tag")


def test_an_interpreter_that_the_image_lacks(lab: Lab) -> None:
    """The agent names it, with a shell's exit code for it."""
    folder = semantics.folder(lab)
    job_id = lab.sbatch("#!/opt/none/python3 -u\ntrue\n", "--output=o", cwd=folder)
    assert semantics.record(lab, job_id) == Record("FAILED", "127:0")
    expected = "penstock: the image has no /opt/none/python3, which the script's first line asks for\n"
    assert (folder / "o").read_text() == expected


def test_an_input_file_that_the_pod_cannot_see(lab: Lab, outside: Path) -> None:
    """Slurm could open it, the container cannot: said instead of an empty input."""
    (outside / "in").write_text("x\n")
    folder = semantics.folder(lab)
    job_id = lab.sbatch("#!/bin/sh\ncat\n", f"--input={outside}/in", "--output=o", cwd=folder)
    assert semantics.record(lab, job_id) == Record("FAILED", "126:0")
    assert (folder / "o").read_text() == f"penstock: the input file {outside}/in is not in the container\n"


def test_a_pod_deleted_by_hand(lab: Lab) -> None:
    """The job ends and says why; it is not run again behind the back of whoever deleted it."""
    folder = semantics.folder(lab)
    job_id = lab.sbatch("#!/bin/sh\ntouch up\nsleep 60\n", "--output=o", cwd=folder)
    semantics.wait_until((folder / "up").exists, "the job runs")
    (pod,) = semantics.pods(lab, job_id)
    meta = pod["metadata"]
    lab.run(("kubectl", "delete", "pod", "-n", meta["namespace"], meta["name"], "--grace-period=1"))
    assert semantics.record(lab, job_id).state == "FAILED"
    check_words(lab, job_id, folder / "o", "^the job's pod was deleted from outside$")
    assert lab.job(job_id)["Restarts"] == "0"


def test_a_folder_that_is_not_on_the_node(lab: Lab, nowhere: tuple[str, Path]) -> None:
    """NAS missing: the job does not wait for ever, and says which folder is not there."""
    job_id, folder = nowhere
    assert semantics.record(lab, job_id, timeout=120) == LOST
    check_words(
        lab,
        job_id,
        folder / "o",
        f"^not started within 60 s: FailedMount: .*hostPath type check failed: {folder}/nowhere is not a dir",
    )
    semantics.wait_until(lambda: not semantics.pods(lab, job_id), "no pod is left")
