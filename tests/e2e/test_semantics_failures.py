"""What goes wrong in Kubernetes is said in one line: in the job's stderr and in Slurm's comment."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.e2e import semantics
from tests.e2e.semantics import Record

Lab = semantics.Lab
LOST = Record("FAILED", "1:0")
DONE = Record("COMPLETED", "0:0")
AGAIN = '[ -n "$SLURM_RESTART_COUNT" ] && exit 0\n'


class DevCluster:
    """The dev cluster's own interface for what goes wrong on purpose; other clusters have none."""

    def __init__(self, lab: Lab) -> None:
        config = json.loads(lab.run(("kubectl", "config", "view", "--raw", "-o", "json")).stdout)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._http = httpx2.Client(
            base_url=cluster["server"],
            headers={"Authorization": f"Bearer {user.get('token', '')}"},
            verify=ssl.create_default_context(cadata=authority),
            timeout=20,
            trust_env=False,
        )

    def __enter__(self) -> DevCluster:
        if self._http.get("/devcluster/v1/faults").status_code != 200:
            self._http.close()
            pytest.skip("only the dev cluster can be broken on purpose")
        return self

    def __exit__(self, *why: object) -> None:
        self._http.delete("/devcluster/v1/faults").raise_for_status()
        self._http.close()

    def set(self, what: str, fault: dict[str, object]) -> None:
        self._http.put(f"/devcluster/v1/faults/{what}", json=fault).raise_for_status()


@pytest.fixture
def breakable(lab: Lab) -> Iterator[DevCluster]:
    """The lab's dev cluster; whole again afterwards."""
    with DevCluster(lab) as cluster:
        yield cluster


def words(lab: Lab, job_id: str, output: Path) -> tuple[list[str], str]:
    """What penstock wrote into the job's output, and the comment."""
    lines = [line for line in output.read_text().splitlines() if line.startswith("penstock: ")]
    return [line.removeprefix("penstock: ") for line in lines], semantics.field(lab, job_id, "Comment")


def check_words(lab: Lab, job_id: str, output: Path, pattern: str) -> None:
    """One line that says it, the same in both places."""
    (line,), comment = words(lab, job_id, output)
    assert re.search(pattern, line), line
    assert comment == line


def test_an_image_that_cannot_be_pulled(lab: Lab, breakable: DevCluster) -> None:
    """The job fails at once instead of running for ever without running."""
    breakable.set("images", {"missing": ["registry.example/none:1"]})
    folder = semantics.folder(lab)
    job_id = lab.sbatch("#!/bin/sh\n#K8S_IMAGE=registry.example/none:1\ntrue\n", "--output=o", cwd=folder)
    assert semantics.record(lab, job_id, timeout=60) == LOST
    check_words(lab, job_id, folder / "o", "^(ImagePullBackOff|ErrImagePull): .*registry.example/none:1")
    assert semantics.pods(lab, job_id) == []


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


def test_an_input_file_that_the_pod_cannot_see(lab: Lab, tmp_path: Path) -> None:
    """Slurm could open it, the container cannot: said instead of an empty input."""
    for place in (tmp_path.parent.parent, tmp_path.parent, tmp_path):
        place.chmod(0o755)
    (tmp_path / "in").write_text("x\n")
    folder = semantics.folder(lab)
    job_id = lab.sbatch("#!/bin/sh\ncat\n", f"--input={tmp_path}/in", "--output=o", cwd=folder)
    assert semantics.record(lab, job_id) == Record("FAILED", "126:0")
    assert (folder / "o").read_text() == f"penstock: the input file {tmp_path}/in is not in the container\n"


def test_a_pod_that_the_node_refuses(lab: Lab, breakable: DevCluster) -> None:
    """Kubelet's own admission says no: the cluster's doing, so the job is run again, elsewhere if need be."""
    folder = semantics.folder(lab)
    breakable.set("nodes/n2", {"reject": "OutOfcpu"})
    job_id = lab.sbatch(f"#!/bin/sh\n{AGAIN}echo never\n", "--nodelist=n2", "--output=o", cwd=folder)
    semantics.wait_until(lambda: lab.job(job_id)["Restarts"] == "1", "it was sent back")
    assert semantics.field(lab, job_id, "Comment").startswith("OutOfcpu")
    breakable.set("nodes/n2", {})
    lab.wait_for(job_id, "COMPLETED", timeout=60)
    assert "never" not in (folder / "o").read_text()


@contextlib.contextmanager
def running(lab: Lab, folder: Path, *options: str) -> Iterator[str]:
    """A job that is up and would go on; its second attempt ends at once."""
    script = f"#!/bin/bash\n{AGAIN}echo up >&2\nfor i in $(seq 600); do sleep 0.1; done\n"
    job_id = lab.sbatch(script, "--output=o", "--open-mode=append", *options, cwd=folder)
    try:
        semantics.wait_for_text(folder / "o", "up")
        yield job_id
    finally:
        lab.run(("scancel", job_id), check=False)


def test_a_pod_deleted_by_hand(lab: Lab) -> None:
    """The job ends and says why; it is not run again behind the back of whoever deleted it."""
    folder = semantics.folder(lab)
    with running(lab, folder) as job_id:
        (pod,) = semantics.pods(lab, job_id)
        meta = pod["metadata"]
        lab.run(("kubectl", "delete", "pod", "-n", meta["namespace"], meta["name"], "--grace-period=1"))
        assert semantics.record(lab, job_id).state == "FAILED"
        check_words(lab, job_id, folder / "o", "^the job's pod was deleted from outside$")
        assert lab.job(job_id)["Restarts"] == "0"


def test_a_drained_node_sends_its_jobs_back(lab: Lab) -> None:
    """kubectl drain: the job goes back to the queue under its id, says why, and runs to its end elsewhere."""
    folder = semantics.folder(lab)
    with running(lab, folder, "--nodelist=n1") as job_id:
        try:
            lab.run(("kubectl", "drain", "n1", "--force", "--ignore-daemonsets", "--timeout=30s"))
            semantics.wait_until(lambda: lab.job(job_id)["Restarts"] == "1", "it was requeued")
            assert "vict" in semantics.field(lab, job_id, "Comment")
            assert semantics.pods(lab, job_id) == []
        finally:
            lab.run(("kubectl", "uncordon", "n1"))
        lab.wait_for(job_id, "COMPLETED", timeout=60)
        assert semantics.record(lab, job_id) == DONE


def test_a_node_that_leaves_kubernetes(lab: Lab, breakable: DevCluster) -> None:
    """Its job is run again, and the reason was in the comment."""
    folder = semantics.folder(lab)
    with running(lab, folder, "--nodelist=n4") as job_id:
        breakable.set("nodes/n4", {"gone": True})
        semantics.wait_until(lambda: lab.job(job_id)["Restarts"] == "1", "it was requeued")
        assert "node" in semantics.field(lab, job_id, "Comment")
        breakable.set("nodes/n4", {})
        lab.wait_for(job_id, "COMPLETED", timeout=90)
