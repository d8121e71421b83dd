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

from penstock.audit import history as history_of
from penstock.judge import rights
from penstock.kube import podview
from penstock.model import resources
from penstock_lab import testing

Lab = semantics.Lab
JOBS = 64
AT_ONCE = 8
"""Pods that must have been there together, or the test would prove nothing."""
CANCELLED_BEFORE, CANCELLED_LATER = 6, 10
GRACE = 20


class History:
    """Every change of every pod since it was opened, as the API told it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def events(self) -> list[history_of.PodEvent]:
        whole_lines = self._file.read_text().rpartition("\n")[0]
        return list(history_of.events(whole_lines.splitlines()))


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
        process.wait(timeout=60)


def capacities(lab: Lab) -> dict[str, resources.Amount]:
    nodes = json.loads(lab.run(("kubectl", "get", "nodes", "-o", "json")).stdout)["items"]
    return {node["metadata"]["name"]: podview.amount(node["status"]["allocatable"]) for node in nodes}


def busiest(events: list[history_of.PodEvent]) -> int:
    """How many pods had room on a node at once, at the most."""
    there: set[str] = set()
    most = 0
    for event in events:
        there.discard(event.object.metadata.uid)
        if event.type != "DELETED" and rights.takes_room(event.object):
            there.add(event.object.metadata.uid)
        most = max(most, len(there))
    return most


def test_sixty_four_jobs_on_sixteen_gpus(lab: Lab, history: History) -> None:
    """Random run times and cancels: no node ever holds more than it has, and no job is lost."""
    seed = random.randrange(2**32)  # noqa: S311  # no secret
    dice = random.Random(seed)  # noqa: S311  # the seed is shown when the test fails
    folder = semantics.folder(lab)
    options = ("--gres=gpu:1", "--mem=100M", "--time=5", "--output=/dev/null")
    script = folder / "s"
    script.write_text("#!/bin/sh\nuntil [ -e go ]; do sleep 0.2; done\nsleep $1\n")
    jobs = []
    for _ in range(JOBS):
        argv = ("sbatch", "--parsable", *options, str(script), f"{dice.uniform(0.05, 1.5):.2f}")
        jobs.append(lab.run_as_user(argv, cwd=folder).stdout.strip())
    cancelled = dice.sample(jobs, CANCELLED_BEFORE + CANCELLED_LATER)
    lab.run_as_user(("scancel", *cancelled[:CANCELLED_BEFORE]))
    testing.until(lambda: busiest(history.events()) >= AT_ONCE)
    (folder / "go").touch()
    for job_id in cancelled[CANCELLED_BEFORE:]:
        time.sleep(dice.uniform(0.0, 0.3))
        lab.run_as_user(("scancel", job_id), check=False)
    ended = semantics.records(lab, jobs, timeout=300)
    for job_id in jobs:
        lab.wait_for(job_id, "COMPLETED", "CANCELLED")
    states = {ended[job_id].state for job_id in set(jobs) - set(cancelled)}
    assert states == {"COMPLETED"}, f"seed {seed}"
    check_history(lab, history, jobs, seed)


def left(events: list[history_of.PodEvent], jobs: list[str]) -> list[str]:
    """Names of pods of these jobs that are there at the end of what was told."""
    last = {event.object.metadata.uid: event for event in events}
    there = (event.object for event in last.values() if event.type != "DELETED")
    return [pod.metadata.name for pod in there if str(podview.job_id(pod)) in jobs]


def is_told(events: list[history_of.PodEvent], job: str) -> bool:
    return any(str(podview.job_id(event.object)) == job for event in events)


def check_history(lab: Lab, history: History, jobs: list[str], seed: int) -> None:
    """Never more than a node has; none left, none made twice."""
    # The API has no pod of theirs any more, but this history is told of it by another process.
    testing.until(lambda: not left(history.events(), jobs))
    events = history.events()
    assert history_of.judge(events, capacities(lab)) == (), f"seed {seed}"
    ours = [event for event in events if str(podview.job_id(event.object)) in jobs]
    last = {event.object.metadata.uid: event.type for event in ours}
    assert set(last.values()) == {"DELETED"}
    names = {event.object.metadata.uid: event.object.metadata.name for event in ours}
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
    ended = semantics.records(lab, (first, second), timeout=180)
    assert time.monotonic() - asked > GRACE - 2
    assert ended[first].state == "FAILED"
    assert ended[second] == semantics.Record("COMPLETED", "0:0")
    lab.wait_for(second, "COMPLETED")
    testing.until(lambda: is_told(history.events(), second) and not left(history.events(), [first, second]))
    events = history.events()
    assert history_of.judge(events, capacities(lab)) == ()
    order = [
        (str(podview.job_id(event.object)), event.type, rights.takes_room(event.object)) for event in events
    ]
    gone = max(at for at, (job_id, kind, _) in enumerate(order) if (job_id, kind) == (first, "DELETED"))
    assert gone < order.index((second, "MODIFIED", True))
