"""All pods of a job or none when the cluster refuses a part of it; what the trusting mode does not see."""

from __future__ import annotations

import datetime
import json
import ssl
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e import semantics

from penstock_lab import spec, testing

Lab = testing.RunningLab


class Faults:
    """The dev cluster's admin API."""

    def __init__(self, lab: Lab) -> None:
        config = json.loads(lab.run(("kubectl", "config", "view", "--raw", "-o", "json")).stdout)
        self._server = config["clusters"][0]["cluster"]["server"]
        self._token = config["users"][0]["user"]["token"]
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    def call(self, method: str, path: str, body: Any = None) -> None:
        request = urllib.request.Request(  # noqa: S310  # the lab's own https address
            f"{self._server}/devcluster/v1/{path}",
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, context=self._tls, timeout=60) as answer:  # noqa: S310  # as above
            answer.read()


@pytest.fixture
def faults(lab: Lab) -> Iterator[Faults]:
    """Faults on demand; none is left."""
    found = Faults(lab)
    yield found
    found.call("DELETE", "faults")


def comment(lab: Lab, job_id: str, words: str, *, seconds: float = 120) -> str:
    """The job's comment as soon as it has these words."""
    deadline = time.monotonic() + seconds
    while True:
        shown = lab.run(("scontrol", "show", "job", job_id)).stdout
        line = next((line.strip() for line in shown.splitlines() if line.strip().startswith("Comment=")), "")
        if words in line:
            return line
        assert time.monotonic() < deadline, f"job {job_id} says {line!r}, not {words!r}\n{shown}"
        time.sleep(0.2)


def job_pods(lab: Lab, job_id: str) -> list[dict[str, Any]]:
    return semantics.pods(lab, job_id)


def no_pods(lab: Lab, job_id: str) -> None:
    deadline = time.monotonic() + 120
    while job_pods(lab, job_id):
        assert time.monotonic() < deadline, f"pods of job {job_id} are left"
        time.sleep(0.2)


def test_pod_refused_by_kubelet_requeues_the_job(lab: Lab, faults: Faults) -> None:
    """The script never starts, no pod stays, and the job runs when the node accepts pods again."""
    faults.call("PUT", "faults/nodes/n4", {"reject": "OutOfcpu"})
    output = lab.home / "refused.out"
    job_id = lab.sbatch(
        "#!/bin/sh\necho script-started $SLURM_RESTART_COUNT\n",
        "-N4",
        f"--output={output}",
        "--open-mode=append",
    )
    comment(lab, job_id, "OutOfcpu")
    no_pods(lab, job_id)
    assert "script-started" not in output.read_text()
    faults.call("DELETE", "faults")
    restarts = lab.wait_for(job_id, "COMPLETED", timeout=180)["Restarts"]
    assert int(restarts) >= 1
    started = [line for line in output.read_text().splitlines() if "script-started" in line]
    assert started == [f"script-started {restarts}"]


def test_quota_fails_the_job_with_the_reason(lab: Lab) -> None:
    """Policy is not capacity: no retry, the API's words in comment and output, nothing left."""
    namespace = f"user-{lab.user}"
    lab.run(("kubectl", "create", "namespace", namespace), check=False)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "tight", "namespace": namespace},
        "spec": {"hard": {"requests.nvidia.com/gpu": "1"}},
    }
    lab.run(("kubectl", "apply", "-f", "-"), stdin=json.dumps(quota))
    try:
        job_id = lab.sbatch("#!/bin/sh\ntrue\n", "--gres=gpu:2")
        assert lab.accounted(job_id)[0] == "FAILED"
        assert "exceeded quota: tight" in comment(lab, job_id, "exceeded quota")
        assert "exceeded quota: tight" in (lab.home / f"slurm-{job_id}.out").read_text()
        no_pods(lab, job_id)
    finally:
        lab.run(("kubectl", "-n", namespace, "delete", "quota", "tight"))


def launcher_ended(lab: Lab, job_id: str) -> bool:
    """From here on only the Epilog keeps the node."""
    end = lab.run(("sacct", "-n", "-P", "-j", f"{job_id}.batch", "-o", "End")).stdout.strip()
    return end not in ("", "Unknown")


def test_node_is_not_freed_while_a_pod_terminates(lab: Lab, faults: Faults) -> None:
    """The job stays COMPLETING while its pod hangs in Terminating, and ends when the pod is gone."""
    output = lab.home / "stuck.out"
    job_id = lab.sbatch("#!/bin/sh\necho up; sleep 100\n", f"--output={output}")
    testing.until(lambda: output.exists() and "up" in output.read_text())
    (pod,) = job_pods(lab, job_id)
    faults.call(
        "PUT",
        f"faults/pods/{pod['metadata']['namespace']}/{pod['metadata']['name']}",
        {"stuckTerminating": True},
    )
    lab.run_as_user(("scancel", job_id))
    testing.until(lambda: launcher_ended(lab, job_id), seconds=120)
    time.sleep(3)
    assert lab.run(("squeue", "-h", "-j", job_id, "-o", "%T")).stdout.strip() == "COMPLETING"
    assert job_pods(lab, job_id)
    faults.call("DELETE", "faults")
    no_pods(lab, job_id)
    assert lab.accounted(job_id)[0].startswith("CANCELLED")


FOREIGN = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "notebook", "namespace": "default"},
    "spec": {
        "nodeName": "n1",
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "c",
                "image": "lab/host-userland:latest",
                "command": ["/bin/sleep", "600"],
                "resources": {"requests": {"nvidia.com/gpu": "3"}, "limits": {"nvidia.com/gpu": "3"}},
            }
        ],
    },
}


def contend(lab: Lab) -> tuple[str, str]:
    """One GPU is free in Kubernetes: job A wants two, then job B wants one."""
    lab.run(("kubectl", "apply", "-f", "-"), stdin=json.dumps(FOREIGN))
    first = lab.sbatch("#!/bin/sh\ntrue\n", "--gres=gpu:2", "-n2")
    deadline = time.monotonic() + 120
    while lab.job(first)["JobState"] == "PENDING" and "Comment" not in lab.job(first):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return first, lab.sbatch("#!/bin/sh\ntrue\n", "--gres=gpu:1", "-n1")


def seconds_until_start(lab: Lab, job_id: str) -> float:
    """How long Slurm will not try the job."""
    begin = datetime.datetime.fromisoformat(lab.job(job_id)["EligibleTime"])
    return (begin - datetime.datetime.now()).total_seconds()


def test_mode_check_lets_the_next_job_run() -> None:
    """A goes back to the queue with the reason, B runs."""
    with testing.temporary_lab("--nodes", "1", "--gpus", "4", "--cpus", "2") as lab:
        first, second = contend(lab)
        assert "1 free of 2 needed, held by default/notebook" in comment(lab, first, "waits for gpu on n1")
        lab.wait_for(second, "COMPLETED", timeout=120)
        lab.wait_for(first, "PENDING")  # Slurm may just be trying it again; one that had run would not be
        assert "refused 2 times, next try in 24 s" in comment(lab, first, "refused 2 times", seconds=120)
        testing.until(lambda: 12 < seconds_until_start(lab, first) <= 24)


def test_mode_trust_deadlock() -> None:
    """A is RUNNING in Slurm with a Pending pod, and B waits behind it although its GPU is idle."""
    with testing.temporary_lab("--nodes", "1", "--gpus", "4", "--cpus", "2", "--mode", "trust") as lab:
        first, second = contend(lab)
        lab.wait_for(first, "RUNNING", timeout=120)
        testing.until(lambda: job_pods(lab, first))
        time.sleep(5)
        assert [pod["status"]["phase"] for pod in job_pods(lab, first)] == ["Pending"]
        assert lab.job(first)["JobState"] == "RUNNING"
        assert lab.job(second)["JobState"] == "PENDING"
        lab.run(("kubectl", "delete", "pod", "notebook"))
        lab.wait_for(first, "COMPLETED", timeout=120)
        lab.wait_for(second, "COMPLETED", timeout=120)


def test_dead_node_is_drained_and_resumed() -> None:
    """Its pods are unknown, not gone: nothing new starts there until they are confirmed gone."""
    if testing.kubernetes() != spec.DEV:
        pytest.skip("only the dev cluster has faults on demand")
    with testing.temporary_lab("--nodes", "2") as lab:
        epilog = lab.place.libexec / "penstock-epilog"
        text = epilog.read_text()
        epilog.write_text(text.replace(text.partition("seconds=")[2].partition(")")[0], "3"))
        output = lab.home / "dead.out"
        job_id = lab.sbatch("#!/bin/sh\necho up; sleep 100\n", "-w", "n2", f"--output={output}")
        testing.until(lambda: output.exists() and "up" in output.read_text())
        faults = Faults(lab)
        faults.call("PUT", "faults/nodes/n2", {"ready": False})
        lab.run_as_user(("scancel", job_id))
        testing.until(lambda: reason(lab, "n2").startswith(f"penstock: pods of job {job_id}"), seconds=120)
        assert job_pods(lab, job_id)
        lab.run(("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=broken fan"))
        faults.call("DELETE", "faults")
        testing.until(lambda: reason(lab, "n2") == "none", seconds=120)
        assert job_pods(lab, job_id) == []
        assert reason(lab, "n1") == "broken fan"


def reason(lab: Lab, node: str) -> str:
    """Why the node is drained."""
    return lab.run(("sinfo", "-h", "-N", "-n", node, "-p", "gpu", "-O", "Reason:100")).stdout.strip()


def test_deleted_namespace_is_recreated(lab: Lab) -> None:
    """Somebody deletes a user's namespace between two jobs: the second runs like the first."""
    if testing.kubernetes() != spec.DEV:
        pytest.skip("a real cluster's lab keeps its users' rights in their namespaces")
    first = lab.sbatch("#!/bin/sh\ntrue\n", "--output=/dev/null")
    assert lab.accounted(first) == ["COMPLETED", "0:0"]
    lab.run(("kubectl", "delete", "namespace", f"user-{lab.user}", "--wait"))
    second = lab.sbatch("#!/bin/sh\ntrue\n", "--output=/dev/null")
    assert lab.accounted(second) == ["COMPLETED", "0:0"]
