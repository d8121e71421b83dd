"""Bugs that bridges of this kind are known for in the field, each as a test that would catch it here."""

from __future__ import annotations

import json
import re
import time

import pytest
from tests.e2e import breaking, semantics, storms
from tests.e2e.labs import GUEST

from penstock import wellknown
from penstock.hooks import wire
from penstock_lab.faultproxy import controlsocket

Lab = semantics.Lab
DONE = semantics.Record("COMPLETED", "0:0")
TRUE = "#!/bin/sh\ntrue\n"


@pytest.fixture(scope="session")
def lab(stormy_lab: Lab) -> Lab:
    """The lab of all tests here."""
    return stormy_lab


def kubectl(lab: Lab, *words: str, stdin: str = "") -> None:
    lab.run(("kubectl", *words), stdin=stdin)


def hold(lab: Lab, pod: semantics.Json, *finalizers: str) -> None:
    """Keep the pod in Terminating once it is deleted, or let it go."""
    meta = pod["metadata"]
    patch = json.dumps({"metadata": {"finalizers": list(finalizers)}})
    kubectl(lab, "patch", "pod", "-n", meta["namespace"], meta["name"], "--type=merge", "-p", patch)


def test_resources_are_kept_while_the_pod_terminates(lab: Lab) -> None:
    """The next job gets the GPUs when the pod is gone, not when its deletion was requested."""
    first = storms.start(lab, "--gres=gpu:4", "-w", "n1")
    (pod,) = semantics.pods(lab, first.job_id)
    hold(lab, pod, "penstock.dev/test")
    second = lab.sbatch(TRUE, "--gres=gpu:4", "-w", "n1")
    lab.run_as_user(("scancel", first.job_id))
    semantics.wait_until(lambda: not first.is_untouched(), "the pod is told to go")
    time.sleep(3)
    assert semantics.pods(lab, second) == []
    assert lab.job(second)["JobState"] == "PENDING"
    hold(lab, pod)
    assert semantics.record(lab, second) == DONE


def test_crashing_images_free_their_gpus(lab: Lab) -> None:
    """A container that exits at once, again and again, is an end each time; its GPUs are free at once."""
    crash = "#!/bin/sh\nkill -SEGV $$\n"
    crashed = [lab.sbatch(crash, "--gres=gpu:4", "-w", "n1") for _ in range(3)]
    missing = lab.sbatch("#!/opt/none/sh\n", "--gres=gpu:4", "-w", "n1")
    last = lab.sbatch(TRUE, "--gres=gpu:4", "-w", "n1")
    found = semantics.records(lab, (*crashed, missing, last))
    assert {found[job_id].state for job_id in (*crashed, missing)} == {"FAILED"}
    assert found[last] == DONE
    assert all(lab.job(job_id)["Restarts"] == "0" for job_id in crashed)


def test_deleted_node_and_slurmctld_restart_do_not_affect_other_jobs(lab: Lab) -> None:
    """Twenty jobs elsewhere continue."""
    with breaking.DevCluster(lab) as cluster:
        folder = semantics.folder(lab)
        job_ids = [
            lab.sbatch(storms.LOOP, "--output=o.%j", "-x", "n4", "--mem=1G", cwd=folder) for _ in range(20)
        ]
        for job_id in job_ids:
            semantics.wait_for_text(folder / f"o.{job_id}", "begin")
        running = storms.watched(lab, job_ids, folder)
        cluster.set("nodes/n4", {"gone": True})
        with storms.away(lab, "slurmctld"):
            pass
        storms.stays_so(lambda: storms.all_untouched(running), seconds=2)
    running[0].end()
    assert set(semantics.records(lab, job_ids).values()) == {storms.TRUE_END}
    assert {lab.job(job_id)["Restarts"] for job_id in job_ids} == {"0"}


def metrics(lab: Lab) -> str:
    sock = wire.connect(str(lab.place.penstockd_socket), 10)
    try:
        sock.sendall(wire.pack(wellknown.VERB_METRICS))
        answer = wire.receive(sock)
    finally:
        sock.close()
    assert answer is not None
    return answer[1].decode()


def calls(lab: Lab, what: str = "") -> int:
    """Requests to the API and commands of Slurm so far, or one kind of them."""
    counters = re.findall(
        r"^penstock_(?:api_requests|slurm_commands)_total(\{.*\}) (\S+)$", metrics(lab), re.M
    )
    return int(sum(float(count) for labels, count in counters if what in labels))


def test_long_queue_causes_no_extra_calls(lab: Lab) -> None:
    """900 pending jobs: as many calls as without them, and those are few."""
    blocker = storms.start(lab, "-N4", "--gres=gpu:4")
    queue = lab.sbatch(TRUE, "--array=0-899", "--gres=gpu:4")
    try:
        semantics.wait_until(lambda: "Resources" in lab.job(queue)["Reason"], "the queue waits")
        before, sweeps = calls(lab), calls(lab, "squeue")
        semantics.wait_until(lambda: calls(lab, "squeue") > sweeps, "a sweep")
        assert calls(lab) - before <= 20, metrics(lab)
    finally:
        lab.run(("scancel", queue))
        blocker.end()
    blocker.check_true_end()


@storms.LONG
def test_refused_job_is_not_starved(lab: Lab) -> None:
    """Small jobs use free room meanwhile; the refused one runs as soon as it can, despite low priority."""
    kubectl(lab, "apply", "-f", "-", stdin=json.dumps(storms.foreign_pod("notebook", "n2", gpus=3)))
    try:
        low = lab.sbatch(TRUE, "--gres=gpu:2", "-w", "n2", "--nice=5000")
        semantics.wait_until(lambda: "notebook" in semantics.field(lab, low, "Comment"), "refused")
        small = lab.sbatch(TRUE, "--gres=gpu:1", "-w", "n2")
        assert semantics.record(lab, small) == DONE
        assert lab.job(low)["JobState"] == "PENDING"
    finally:
        kubectl(lab, "delete", "pod", "notebook", "--wait=true")
    later = [lab.sbatch(TRUE, "--gres=gpu:1", "-w", "n2") for _ in range(4)]
    assert semantics.record(lab, low, timeout=180) == DONE
    assert set(semantics.records(lab, later).values()) == {DONE}


def test_cancel_and_pod_deletion_during_api_outage(lab: Lab, switch: controlsocket.Control) -> None:
    """The node is freed only when the pod is known to be gone; a pod deleted by hand is told as such."""
    cancelled, deleted = storms.start(lab), storms.start(lab)
    (pod,) = semantics.pods(lab, deleted.job_id)
    with switch.during(storms.Rule(fault="unreachable")):
        lab.run_as_user(("scancel", cancelled.job_id))
        kubectl(lab, "delete", "pod", "-n", pod["metadata"]["namespace"], pod["metadata"]["name"])
        time.sleep(2)
        assert cancelled.is_untouched()
        assert state(lab, cancelled.job_id) in ("RUNNING", "COMPLETING")
        assert state(lab, deleted.job_id) == "RUNNING"
    assert semantics.record(lab, cancelled.job_id).state == "CANCELLED"
    assert semantics.record(lab, deleted.job_id).state == "FAILED"
    assert "deleted from outside" in semantics.field(lab, deleted.job_id, "Comment")
    semantics.wait_until(lambda: not semantics.pods(lab, cancelled.job_id), "the cancelled job's pod is gone")


LOST_ANSWER = (
    storms.Rule(fault="swallow", verbs=("bind",), times=1),
    storms.Rule(fault="status", status=503, verbs=("get",), resources=("pods",)),
)


def test_pod_deleted_after_unanswered_binding(lab: Lab, switch: controlsocket.Control) -> None:
    """penstockd cannot know that the script ran, and does not start it a second time."""
    folder = semantics.folder(lab)
    with switch.during(*LOST_ANSWER):
        job_id = lab.sbatch(storms.LOOP, "--output=o", "--open-mode=append", cwd=folder)
        semantics.wait_for_text(folder / "o", "begin")
        (pod,) = semantics.pods(lab, job_id)
        kubectl(lab, "delete", "pod", "-n", pod["metadata"]["namespace"], pod["metadata"]["name"])
    assert semantics.record(lab, job_id).state == "FAILED"
    assert "deleted from outside" in semantics.field(lab, job_id, "Comment")
    assert (folder / "o").read_text().count("begin") == 1


def state(lab: Lab, job_id: str) -> str:
    return lab.run(("squeue", "-h", "-j", job_id, "-o", "%T")).stdout.strip()


def test_same_job_name_in_two_namespaces(lab: Lab) -> None:
    """Two users' jobs of one name are independent."""
    lab.penstock("lab", "adduser", GUEST, "--dir", str(lab.place.directory))
    options = ("--job-name=train", "--output=o")
    script = "#!/bin/sh\necho $(id -un)\nwhile [ ! -e stop ]; do sleep 0.1; done\n"
    folders = [lab.home, lab.place.nas_home(GUEST)]
    users = [lab.user, GUEST]
    first, second = (
        lab.sbatch(script, *options, user=user, cwd=folder)
        for user, folder in zip(users, folders, strict=True)
    )
    for user, folder in zip(users, folders, strict=True):
        semantics.wait_for_text(folder / "o", user)
    (one,), (other,) = semantics.pods(lab, first), semantics.pods(lab, second)
    assert one["metadata"]["namespace"] != other["metadata"]["namespace"]
    lab.run_as_user(("scancel", f"--user={lab.user}", "--name=train"))
    assert semantics.record(lab, first).state == "CANCELLED"
    assert storms.uids(semantics.pods(lab, second)) == (other["metadata"]["uid"],)
    (folders[1] / "stop").touch()
    assert semantics.record(lab, second) == DONE


ONCE_MORE = """\
#!/bin/sh
echo attempt-${SLURM_RESTART_COUNT:-0} >> log-$SLURM_ARRAY_TASK_ID
[ $SLURM_ARRAY_TASK_ID != 2 ] || [ -n "$SLURM_RESTART_COUNT" ] || sleep 100
"""


def test_last_array_task_is_requeued_alone(lab: Lab) -> None:
    """Its number is the array's: ended tasks do not run again and get no comment."""
    folder = semantics.folder(lab)
    array = lab.sbatch(ONCE_MORE, "--array=0-2", "--output=/dev/null", cwd=folder)
    others = [f"{array}_0", f"{array}_1"]
    semantics.wait_for_text(folder / "log-2", "attempt-0")
    assert set(semantics.records(lab, others).values()) == {DONE}
    (pod,) = semantics.pods(lab, array)
    node = pod["spec"]["nodeName"]
    try:
        options = ("--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=30s")
        kubectl(lab, "drain", node, *options)
        semantics.wait_until(lambda: lab.job(f"{array}_2")["Restarts"] == "1", "sent back")
    finally:
        kubectl(lab, "uncordon", node)
    storms.hurry(lab, f"{array}_2")
    end = semantics.record(lab, f"{array}_2", timeout=120)
    assert end == DONE, lab.penstock("show", f"{array}_2", check=False).stdout
    assert "vict" in semantics.field(lab, f"{array}_2", "Comment")
    assert [semantics.field(lab, name, "Comment") for name in others] == ["", ""]
    once, twice = "attempt-0\n", "attempt-0\nattempt-1\n"
    assert [(folder / f"log-{task}").read_text() for task in range(3)] == [once, once, twice]
