"""No GPU is ever given twice: read from the API's own history of every pod, not by looking now and then."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from tests.e2e import semantics

from penstock.kube import reading
from penstock.model import resources

Lab = semantics.Lab
Json = semantics.Json
JOBS = 64
CANCELLED_BEFORE, CANCELLED_LATER = 6, 10
GRACE = 20


class History:
    """Every change of every pod since it was opened, as the API told it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def events(self) -> list[Json]:
        return [json.loads(line) for line in self._file.read_text().splitlines() if line.endswith("}")]


def _label(event: Json, name: str) -> str:
    return str(event["object"]["metadata"].get("labels", {}).get(name, ""))


@pytest.fixture
def history(lab: Lab, tmp_path: Path) -> Iterator[History]:
    """A watch from the resourceVersion of now, kept open until the test has ended."""
    version = json.loads(lab.run(("kubectl", "get", "--raw", "/api/v1/pods?limit=1")).stdout)["metadata"]
    path = f"/api/v1/pods?watch=1&timeoutSeconds=600&resourceVersion={version['resourceVersion']}"
    with (tmp_path / "events").open("wb") as file, _watching(lab, path, file):
        yield History(tmp_path / "events")


@contextlib.contextmanager
def _watching(lab: Lab, path: str, file: IO[bytes]) -> Iterator[None]:
    process = subprocess.Popen(("kubectl", "get", "--raw", path), env=lab.env, stdout=file)
    try:
        yield
        assert process.poll() is None, "the watch broke off: the history has a gap"
    finally:
        process.kill()
        process.wait(timeout=10)


def capacities(lab: Lab) -> dict[str, resources.Amount]:
    nodes = json.loads(lab.run(("kubectl", "get", "nodes", "-o", "json")).stdout)["items"]
    return {node["metadata"]["name"]: reading.amount(node["status"]["allocatable"]) for node in nodes}


def takes(event: Json) -> bool:
    """Whether the pod has a node's room after this event: bound, not ended, not gone."""
    pod = event["object"]
    over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return event["type"] != "DELETED" and bool(pod["spec"].get("nodeName")) and not over


def peaks(events: list[Json]) -> dict[str, resources.Amount]:
    """The most that was taken of each node at any instant, in every resource; a replay of all events."""
    held: dict[str, tuple[str, resources.Amount]] = {}
    most: dict[str, resources.Amount] = {}
    for event in events:
        pod = event["object"]
        uid = pod["metadata"]["uid"]
        held.pop(uid, None)
        if takes(event):
            node = pod["spec"]["nodeName"]
            held[uid] = (node, reading.amount(semantics.requests(pod)))
            total = sum((amount for where, amount in held.values() if where == node), resources.Amount())
            most[node] = _greater(most.get(node, resources.Amount()), total)
    return most


def _greater(one: resources.Amount, other: resources.Amount) -> resources.Amount:
    return resources.Amount(
        millicpus=max(one.millicpus, other.millicpus),
        memory=max(one.memory, other.memory),
        gpus=max(one.gpus, other.gpus),
    )


def made_up(uid: str, kind: str, *, phase: str = "Running", node: str = "n1") -> Json:
    container = {"resources": {"requests": {"nvidia.com/gpu": "3"}}}
    spec = {"nodeName": node, "containers": [container]}
    return {"type": kind, "object": {"metadata": {"uid": uid}, "spec": spec, "status": {"phase": phase}}}


def test_the_replay_sees_a_double_booking() -> None:
    """Two pods of three GPUs at once are six; one after the other, or on two nodes, they are three."""
    a, b = made_up("a", "MODIFIED"), made_up("b", "MODIFIED")
    assert peaks([a, b])["n1"].gpus == 6
    assert peaks([a, made_up("a", "DELETED"), b])["n1"].gpus == 3
    assert peaks([a, made_up("a", "MODIFIED", phase="Failed"), b])["n1"].gpus == 3
    assert peaks([a, made_up("b", "MODIFIED", node="n2")])["n1"].gpus == 3
    assert peaks([made_up("a", "ADDED", node=""), b])["n1"].gpus == 3


def test_sixty_four_jobs_on_sixteen_gpus(lab: Lab, history: History) -> None:
    """Random run times and cancels: no node ever holds more than it has, and no job is lost."""
    seed = random.randrange(2**32)  # noqa: S311  # no secret
    dice = random.Random(seed)  # noqa: S311  # the seed is shown when the test fails
    folder = semantics.folder(lab)
    options = ("--gres=gpu:1", "--mem=100M", "--time=5", "--output=/dev/null")
    script = folder / "s"
    script.write_text("#!/bin/sh\nsleep $1\n")
    jobs = []
    for _ in range(JOBS):
        argv = ("sbatch", "--parsable", *options, str(script), f"{dice.uniform(0.05, 1.5):.2f}")
        jobs.append(lab.run_as_user(argv, cwd=folder).stdout.strip())
    cancelled = dice.sample(jobs, CANCELLED_BEFORE + CANCELLED_LATER)
    lab.run_as_user(("scancel", *cancelled[:CANCELLED_BEFORE]))
    for job_id in cancelled[CANCELLED_BEFORE:]:
        time.sleep(dice.uniform(0.0, 0.3))
        lab.run_as_user(("scancel", job_id), check=False)
    ended = semantics.records(lab, jobs, timeout=120)
    for job_id in jobs:
        lab.wait_for(job_id, "COMPLETED", "CANCELLED")
    states = {ended[job_id].state for job_id in set(jobs) - set(cancelled)}
    assert states == {"COMPLETED"}, f"seed {seed}"
    check_history(lab, history, jobs, seed)


def check_history(lab: Lab, history: History, jobs: list[str], seed: int) -> None:
    """No peak over what a node has; many pods at once, or the test would prove nothing; none left."""
    events, room = history.events(), capacities(lab)
    most = peaks(events)
    for node, amount in most.items():
        assert not amount.shortages(room[node]), f"{node} held {amount} of {room[node]}, seed {seed}"
    assert sum(amount.gpus for amount in most.values()) >= 8
    ours = [event for event in events if _label(event, "penstock.dev/job-id") in jobs]
    last = {event["object"]["metadata"]["uid"]: event["type"] for event in ours}
    assert set(last.values()) == {"DELETED"}
    names = {event["object"]["metadata"]["uid"]: event["object"]["metadata"]["name"] for event in ours}
    assert len(set(names.values())) == len(names), f"a pod was made twice, seed {seed}"


def test_the_next_job_waits_for_a_pod_that_goes_slowly(lab: Lab, history: History) -> None:
    """A pod deleted with 20 s of grace has its GPUs until it is gone; only then does the next pod start."""
    folder = semantics.folder(lab)
    stubborn = "#!/bin/bash\ntrap 'echo no' TERM\ntouch up\nwhile :; do sleep 0.2; done\n"
    where = ("--gres=gpu:4", "--nodelist=n2")
    first = lab.sbatch(stubborn, *where, cwd=folder)
    semantics.wait_until((folder / "up").exists, "the first job runs")
    second = lab.sbatch("#!/bin/sh\ntrue\n", *where, cwd=folder)
    (pod,) = semantics.pods(lab, first)
    meta = pod["metadata"]
    argv = ("kubectl", "delete", "pod", "-n", meta["namespace"], meta["name"], f"--grace-period={GRACE}")
    asked = time.monotonic()
    lab.run((*argv, "--wait=false"))
    ended = semantics.records(lab, (first, second), timeout=60)
    assert time.monotonic() - asked > GRACE - 2
    assert ended[first].state == "FAILED"
    assert ended[second] == semantics.Record("COMPLETED", "0:0")
    order = [
        (_label(event, "penstock.dev/job-id"), event["type"], takes(event)) for event in history.events()
    ]
    gone, begun = order.index((first, "DELETED", False)), order.index((second, "MODIFIED", True))
    assert gone < begun
