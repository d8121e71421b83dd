"""`penstock check` on a live lab: all is well, and every kind of violation that can be planted is found."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e import labs, semantics

from penstock import wellknown
from penstock.hooks import wire
from penstock.model import jobs
from penstock.render import pods as rendering
from penstock_lab import processes, spec, testing

Lab = testing.RunningLab
AT_ONCE = ("--patience", "0")


def report(lab: Lab, *options: str, status: int) -> list[dict[str, Any]]:
    """The violations that the command finds."""
    result = lab.penstock("check", "--format", "json", *options, check=False)
    assert result.returncode == status, result.stdout + result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)["violations"]
    return found


def kinds(lab: Lab) -> set[str]:
    return {one["kind"] for one in report(lab, *AT_ONCE, status=1)}


def running_job(lab: Lab, *options: str, script: str = "sleep 600") -> str:
    """A job whose script has begun."""
    mark = semantics.folder(lab, "check") / "up"
    job_id = lab.sbatch(f"#!/bin/sh\ntouch {mark}\n{script}\n", *options)
    semantics.wait_until(mark.exists, "the script has begun")
    return job_id


def labels(lab: Lab, job_id: str, restart: int = 0) -> dict[str, str]:
    identity = jobs.JobIdentity(job_id=int(job_id), restart=restart, uid=0)
    return rendering.labels_of(identity, spec.load(lab.place).name)


def apply(lab: Lab, manifest: dict[str, Any]) -> None:
    lab.run(("kubectl", "apply", "-f", "-"), stdin=json.dumps({"apiVersion": "v1", **manifest}))


def pod_of(lab: Lab, job_id: str, node: str) -> dict[str, Any]:
    container = {
        "name": "job",
        "image": json.loads(lab.place.penstockd_conf.read_text())["pods"]["default_image"],
        "command": ["sleep", "600"],
        "resources": {"requests": {"cpu": "1"}},
    }
    return {
        "kind": "Pod",
        "metadata": {"name": "planted", "namespace": "default", "labels": labels(lab, job_id)},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


@pytest.fixture
def planted(lab: Lab) -> Iterator[None]:
    """What a test plants in the cluster is gone afterwards."""
    yield
    for kind in ("pod", "secret"):
        lab.run(("kubectl", "delete", kind, "planted", "--ignore-not-found", "--wait=true"))


@pytest.fixture
def forgotten(lab: Lab) -> Iterator[None]:
    """What penstockd was made to believe is forgotten with it."""
    yield
    labs.kill(lab.place, "penstockd")
    testing.lab_command(lab.place, "up")


def launcher(lab: Lab, job_id: str) -> processes.Identity:
    """The launcher of a job: what slurmd runs instead of the script."""
    spooled = f"job{int(job_id):05d}/slurm_script"
    (found,) = (
        process.identity
        for process in processes.snapshot()
        if any(word.endswith("/penstock-launch") for word in process.argv[:3])
        and any(spooled in word and word.startswith(str(lab.place.directory)) for word in process.argv)
    )
    return found


def test_check_of_a_busy_lab_is_clean(lab: Lab) -> None:
    """Running jobs, a gang and an array: no finding, exit 0, and quickly."""
    job_ids = [running_job(lab), running_job(lab, "--nodes=2")]
    began = time.monotonic()
    lab.check()
    assert time.monotonic() - began < 30  # well under half a second on an idle machine
    assert report(lab, status=0) == []
    lab.run(("scancel", *job_ids))


def test_orphans_are_found(lab: Lab, planted: None) -> None:
    """A pod and a Secret of a job that never existed."""
    apply(lab, {"kind": "Secret", "metadata": {"name": "planted", "labels": labels(lab, "999999")}})
    apply(lab, pod_of(lab, "999999", "n4"))
    assert kinds(lab) == {"freed-too-early", "orphan-pod", "orphan-secret"}
    result = lab.penstock("check", *AT_ONCE, check=False)
    assert result.returncode == 1
    assert "I2 no orphans: orphan-pod: pod default/planted" in result.stdout
    assert "    Slurm does not know the job" in result.stdout


def test_objects_of_another_slurm_are_ignored(lab: Lab, planted: None) -> None:
    """Their jobs are unknown to this Slurm."""
    theirs = labels(lab, "999999") | {wellknown.LABEL_CLUSTER: "another"}
    apply(lab, {"kind": "Secret", "metadata": {"name": "planted", "labels": theirs}})
    pod = pod_of(lab, "999999", "n4")
    pod["metadata"]["labels"] = theirs
    apply(lab, pod)
    assert report(lab, *AT_ONCE, status=0) == []


def test_pod_exceeding_the_allocation_is_found(lab: Lab, planted: None) -> None:
    """Somebody creates a pod in a running job's name."""
    job_id = running_job(lab, "--nodelist=n4", "--cpus-per-task=1")
    apply(lab, pod_of(lab, job_id, "n4"))
    assert kinds(lab) == {"more-than-its-share"}
    lab.run(("scancel", job_id))


def test_overcommitted_node_is_found(lab: Lab) -> None:
    """The node shrinks under a job."""
    if testing.kubernetes() != spec.DEV:
        pytest.skip("a real kubelet says itself what it has")
    job_id = running_job(lab, "--nodelist=n4", "--cpus-per-task=2")

    def resize(cpus: str) -> None:
        patch = json.dumps({"status": {"allocatable": {"cpu": cpus}}})
        lab.run(("kubectl", "patch", "node", "n4", "--subresource=status", "--type=merge", "-p", patch))

    resize("1")
    try:
        assert kinds(lab) == {"crowded"}
    finally:
        resize("8")
    lab.run(("scancel", job_id))


def hold_room_for_nobody(lab: Lab) -> None:
    """penstockd is made to hold room for a job that it will not hear of again."""
    job_id = lab.sbatch("#!/bin/sh\nsleep 60\n", "--partition=host", "--nodelist=n4")
    lab.wait_for(job_id, "RUNNING")
    lab.run(("scontrol", "update", f"JobId={job_id}", f"AdminComment={wellknown.ADMIN_MARK}"))
    sock = wire.connect(str(lab.place.penstockd_socket), 20)
    sock.sendall(wire.pack("admit", "job", job_id, "uid", "0", "restart", "0"))
    assert wire.receive(sock) == [b"yes"]
    sock.close()
    lab.run(("scancel", job_id))
    lab.wait_for(job_id, "CANCELLED")


def test_stale_reservation_is_found(lab: Lab, forgotten: None) -> None:
    """Retried if penstockd's own sweep, every 15 s, comes first."""
    for _ in range(3):
        hold_room_for_nobody(lab)
        answer = lab.penstock("check", "--format", "json", *AT_ONCE, check=False)
        found = {one["kind"] for one in json.loads(answer.stdout)["violations"]}
        if found:
            break
    assert (answer.returncode, found) == (1, {"held-for-nobody"})


def test_running_job_without_pod_is_found(lab: Lab) -> None:
    """The pod has ended and Slurm is not told."""
    go = semantics.folder(lab, "check") / "go"
    job_id = running_job(lab, script=f"while [ ! -e {go} ]; do sleep 0.1; done")
    process = launcher(lab, job_id)
    processes.send(process, signal.SIGSTOP)
    try:
        go.touch()
        semantics.wait_until(
            lambda: semantics.pods(lab, job_id)[0]["status"]["phase"] == "Succeeded", "the pod has ended"
        )
        assert kinds(lab) == {"runs-without-running"}
    finally:
        processes.send(process, signal.SIGCONT)
    assert semantics.record(lab, job_id).state == "COMPLETED"


def told_in_vain(lab: Lab, job_id: str, *, text: str) -> processes.Identity:
    """Stop the launcher and delete the pod: penstockd tells the end, and nobody listens yet."""
    process = launcher(lab, job_id)
    processes.send(process, signal.SIGSTOP)
    (pod,) = semantics.pods(lab, job_id)
    meta = pod["metadata"]
    lab.run(("kubectl", "delete", "pod", "-n", meta["namespace"], meta["name"], "--wait=true"))
    semantics.wait_until(lambda: text in semantics.field(lab, job_id, "Comment"), "the reason is told")
    return process


def test_record_differing_from_the_container_is_found(lab: Lab, forgotten: None) -> None:
    """The launcher exits with another code than the container."""
    job_id = running_job(lab)
    process = told_in_vain(lab, job_id, text="deleted from outside")
    processes.send(process, signal.SIGSEGV)
    processes.send(process, signal.SIGCONT)
    lab.wait_for(job_id, "FAILED")
    assert kinds(lab) == {"another-end"}


def test_lost_reason_is_found(lab: Lab, forgotten: None) -> None:
    """The comment is overwritten before the job ends."""
    job_id = running_job(lab)
    process = told_in_vain(lab, job_id, text="deleted from outside")
    lab.run(("scontrol", "update", f"JobId={job_id}", "Comment=all went well"))
    processes.send(process, signal.SIGCONT)
    lab.wait_for(job_id, "FAILED")
    assert kinds(lab) == {"reason-missing"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("PENSTOCK_SOCKET", "/nowhere"), ("SLURM_CONF", ""), ("KUBECONFIG", "")],
)
def test_outage_is_never_reported_as_clean(lab: Lab, tmp_path: Path, name: str, value: str) -> None:
    """Exit 3: no violation seen, but the state is unknown."""
    ports = spec.load(lab.place)
    closed = tmp_path / "closed"
    if name == "KUBECONFIG":
        text = lab.place.admin_kubeconfig.read_text()
        closed.write_text(text.replace(f":{ports.devcluster_port}", ":1"))
    if name == "SLURM_CONF":
        closed.write_text("")
    value = value or str(closed)
    argv = (str(lab.place.bin / "penstock"), "check")
    env = lab.env | {name: value} | ({"PENSTOCK_SITE": ""} if name == "SLURM_CONF" else {})
    result = testing.run(argv, env=env, timeout=60, check=False, cwd=Path("/"))
    assert result.returncode == 3, result.stdout + result.stderr
    assert "penstock: unknown: " in result.stderr
    assert "No violation" not in result.stdout


def test_ordinary_user_may_not_check(lab: Lab) -> None:
    """Reservations are reported to root and SlurmUser only."""
    result = lab.run_as_user((str(lab.place.bin / "penstock"), "check"), check=False)
    assert result.returncode in (2, 3), result.stdout
    assert "No violation" not in result.stdout


def test_watch_prints_changes_and_updates_the_metric(lab: Lab, planted: None, tmp_path: Path) -> None:
    """One line when an invariant breaks, one when it holds again; the metric is 0, 1, 0."""
    metrics, said = tmp_path / "penstock.prom", tmp_path / "said"
    argv = ["penstock", "check", "--watch", "--interval", "0.3", *AT_ONCE, "--metrics-file", str(metrics)]

    def counted(text: str) -> bool:
        return metrics.exists() and f'{{invariant="I2"}} {text}' in metrics.read_text()

    with said.open("w") as out:
        child = os.posix_spawn(
            lab.place.bin / "penstock",
            argv,
            lab.env,
            file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1)],
        )
    try:
        semantics.wait_until(lambda: counted("0"), "the metric says that all is well")
        apply(lab, {"kind": "Secret", "metadata": {"name": "planted", "labels": labels(lab, "999999")}})
        semantics.wait_until(lambda: counted("1"), "the metric counts the orphan")
        lab.run(("kubectl", "delete", "secret", "planted"))
        semantics.wait_until(lambda: counted("0"), "the metric says that all is well again")
        semantics.wait_until(lambda: "resolved" in said.read_text(), "so does the command")
    finally:
        os.kill(child, signal.SIGINT)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    text = said.read_text()
    assert "violation: I2 no orphans: orphan-secret: secret default/planted" in text
    assert "resolved: orphan-secret: secret default/planted" in text
    assert "penstock_check_known 1" in metrics.read_text()
