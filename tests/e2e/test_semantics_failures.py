"""What goes wrong in Kubernetes is said in one line: in the job's stderr and in Slurm's comment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e import clusters, semantics
from tests.e2e.semantics import Record

from penstock_lab import testing

Lab = semantics.Lab
LOST = Record("FAILED", "1:0")
MISSING = "nas-hub.local:5407/lab/none:1"


@pytest.fixture
def away(lab: Lab) -> Iterator[str]:
    """A shared mount that no node has; penstockd waits for five seconds instead of sixty."""
    before = lab.place.penstockd_conf.read_text()
    settings = json.loads(before)
    mount = f"{lab.place.directory}/away"
    settings["pods"]["shared_mounts"].append(mount)
    changed = settings | {"start_timeout": 5}
    try:
        lab.place.penstockd_conf.write_text(json.dumps(changed))
        testing.lab_command(lab.place, "restart", "penstockd")
        yield mount
    finally:
        lab.place.penstockd_conf.write_text(before)
        testing.lab_command(lab.place, "restart", "penstockd")


def words(lab: Lab, job_id: str, output: Path) -> tuple[list[str], str]:
    """What penstock wrote into the job's output, and the comment."""
    lines = [line for line in output.read_text().splitlines() if line.startswith("penstock: ")]
    return [line.removeprefix("penstock: ") for line in lines], semantics.field(lab, job_id, "Comment")


def check_words(lab: Lab, job_id: str, output: Path, pattern: str) -> None:
    """One line that says it, the same in both places."""
    (line,), comment = words(lab, job_id, output)
    assert re.search(pattern, line), line
    assert comment == line


def test_unpullable_image(lab: Lab) -> None:
    """The job fails at once instead of staying RUNNING."""
    folder = semantics.folder(lab)
    with clusters.without_image(lab, MISSING):
        job_id = lab.sbatch(f"#!/bin/sh\n#K8S_IMAGE={MISSING}\ntrue\n", "--output=o", cwd=folder)
        assert semantics.record(lab, job_id, timeout=60) == LOST
    check_words(lab, job_id, folder / "o", f"^(ImagePullBackOff|ErrImagePull): .*{MISSING}")
    semantics.wait_until(lambda: not semantics.pods(lab, job_id), "no pod is left")


def test_image_without_shell(lab: Lab) -> None:
    """The agent cannot run: reported in our words instead of the container runtime's."""
    folder = semantics.folder(lab)
    job_id = lab.sbatch("#!/bin/sh\n#K8S_IMAGE=lab/pause:1\ntrue\n", "--output=o", cwd=folder)
    assert semantics.record(lab, job_id) == LOST
    check_words(
        lab, job_id, folder / "o", "^StartError: the image has no /bin/sh, which the job's agent needs$"
    )


def test_invalid_image_name(lab: Lab) -> None:
    """Reported by us or by kubelet (InvalidImageName); nothing is retried."""
    folder = semantics.folder(lab)
    job_id = lab.sbatch("#!/bin/sh\n#K8S_IMAGE=Bad::Name\ntrue\n", "--output=o", cwd=folder)
    assert semantics.record(lab, job_id) == LOST
    check_words(
        lab, job_id, folder / "o", "^InvalidImageName: .*Bad::Name|#K8S_IMAGE: .*Name. is not a valid tag"
    )


def test_missing_interpreter(lab: Lab) -> None:
    """The agent names it, with a shell's exit code for it."""
    folder = semantics.folder(lab)
    job_id = lab.sbatch("#!/opt/none/python3 -u\ntrue\n", "--output=o", cwd=folder)
    assert semantics.record(lab, job_id) == Record("FAILED", "127:0")
    expected = "penstock: the image has no /opt/none/python3, which the script's first line asks for\n"
    assert (folder / "o").read_text() == expected


def test_input_file_outside_the_pod(lab: Lab, outside: Path) -> None:
    """Slurm could open it, the container cannot: reported instead of an empty input."""
    (outside / "in").write_text("x\n")
    folder = semantics.folder(lab)
    job_id = lab.sbatch("#!/bin/sh\ncat\n", f"--input={outside}/in", "--output=o", cwd=folder)
    assert semantics.record(lab, job_id) == Record("FAILED", "126:0")
    assert (folder / "o").read_text() == f"penstock: the input file {outside}/in is not in the container\n"


def test_pod_deleted_by_hand(lab: Lab) -> None:
    """The job ends with the reason; it is not run again."""
    folder = semantics.folder(lab)
    job_id = lab.sbatch("#!/bin/sh\ntouch up\nsleep 60\n", "--output=o", cwd=folder)
    semantics.wait_until((folder / "up").exists, "the job runs")
    (pod,) = semantics.pods(lab, job_id)
    meta = pod["metadata"]
    lab.run(("kubectl", "delete", "pod", "-n", meta["namespace"], meta["name"], "--grace-period=1"))
    assert semantics.record(lab, job_id).state == "FAILED"
    check_words(lab, job_id, folder / "o", "^the job's pod was deleted from outside$")
    assert lab.job(job_id)["Restarts"] == "0"


def warnings(lab: Lab, job_id: str) -> list[str]:
    """What `penstock show` repeats of the cluster's warnings about the job's pods."""
    (shown,) = json.loads(lab.penstock("show", job_id, "--format", "json").stdout)["jobs"]
    return [words for pod in shown["pods"] for words in pod["warnings"]]


def test_missing_shared_mount(lab: Lab, away: str) -> None:
    """The job does not wait forever and names the missing folder, which is not created."""
    folder = semantics.folder(lab)
    job_id = lab.sbatch("#!/bin/sh\ntrue\n", "--output=o", cwd=folder)
    why = f"hostPath type check failed: {away} is not a dir"
    semantics.wait_until(lambda: why in " ".join(warnings(lab, job_id)), "`show` says what keeps its pod")
    assert semantics.record(lab, job_id) == LOST
    check_words(lab, job_id, folder / "o", f"^not started within 5 s: FailedMount: .*{why}")
    semantics.wait_until(lambda: not semantics.pods(lab, job_id), "no pod is left")
    assert not Path(away).exists()


@pytest.mark.parametrize("nodes", [1, 2])
def test_missing_mount_folder(lab: Lab, nodes: int) -> None:
    """Reported before a kubelet would create it as root; existing folders do not matter."""
    folder = semantics.folder(lab)
    lab.run_as_user(("mkdir", str(folder / "data")))
    mounts = f"#K8S_MOUNT={folder}/data:/data\n#K8S_MOUNT={folder}/no where:/more\n"
    job_id = lab.sbatch(f"#!/bin/sh\n{mounts}true\n", f"-N{nodes}", "--output=o", cwd=folder)
    assert semantics.record(lab, job_id) == LOST
    why = f"#K8S_MOUNT={folder}/no where: the job's owner sees no such folder on the node"
    check_words(
        lab, job_id, folder / "o", f"^{why}$" if nodes == 1 else f"^not started: rank 1 on n.: {why}$"
    )
    semantics.wait_until(lambda: not semantics.pods(lab, job_id), "no pod is left")
    assert not (folder / "no where").exists()


def test_mount_folder_closed_to_its_owner(lab: Lab) -> None:
    """A kubelet would mount it, since it is root."""
    folder = semantics.folder(lab)
    (folder / "closed" / "open").mkdir(parents=True)
    (folder / "closed").chmod(0o700)
    script = f"#!/bin/sh\n#K8S_MOUNT={folder}/closed/open:/data\nls /data\n"
    job_id = lab.sbatch(script, "--output=o", cwd=folder)
    assert semantics.record(lab, job_id) == LOST
    check_words(lab, job_id, folder / "o", "closed/open: the job's owner sees no such folder on the node$")


def test_container_config_error(lab: Lab) -> None:
    """A folder to mount is a link out of the NAS, which no kubelet follows: CreateContainerConfigError."""
    folder = semantics.folder(lab)
    lab.run_as_user(("ln", "-s", "/etc", str(folder / "innocent")))
    script = f"#!/bin/sh\n#K8S_MOUNT={folder}/innocent:/data\ncat /data/hostname\n"
    job_id = lab.sbatch(script, "--output=o", cwd=folder)
    assert semantics.record(lab, job_id) == LOST
    why = "a folder cannot be mounted, as when a link leads out of the shared folders"
    pattern = f"^#K8S_MOUNT: {why} .CreateContainerConfigError: failed to prepare"
    check_words(lab, job_id, folder / "o", pattern)
    semantics.wait_until(lambda: not semantics.pods(lab, job_id), "no pod is left")
