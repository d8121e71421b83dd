"""What the demo takes for right and wrong: it must be able to fail."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from penstock_lab.demo import scenario

ALL = (*scenario.JOBS, *scenario.IN_CONTAINERS)
SUBMITTED = {str(number): job for number, job in enumerate(ALL, start=1)}


def records(**changed: str) -> tuple[scenario.Record, ...]:
    """The record that everything went well, but for the states of jobs by file name."""
    found = []
    for job_id, job in SUBMITTED.items():
        state = changed.get(job.file.partition(".")[0], job.state)
        names = [job_id] if job.tasks == 1 else [f"{job_id}_{task}" for task in range(job.tasks)]
        found += [
            scenario.Record(job=name, name="", state=state, exit_code=job.exit_code, elapsed="", nodes="")
            for name in names
        ]
    return tuple(found)


def outputs() -> dict[str, str]:
    """Output files in which everything went well."""
    found = {}
    for job_id, job in SUBMITTED.items():
        stem = job.file.partition(".")[0]
        for task in range(job.tasks):
            found[f"{stem}-{job_id}_{task}.out"] = f"{job.says}\n"
    return found


def test_no_problems() -> None:
    """Nothing is reported."""
    assert scenario.wrong_records(SUBMITTED, records()) == []
    assert scenario.wrong_outputs(SUBMITTED, outputs()) == []


def test_a_wrong_state_is_named() -> None:
    """What sacct says, and what it should."""
    (line,) = scenario.wrong_records(SUBMITTED, records(hungry="COMPLETED"))
    assert line == "hungry.py: sacct says COMPLETED 0:9, not FAILED 0:9"


@pytest.mark.parametrize("name", ["hello", "hungry", "tools"])
def test_a_missing_output_is_named(name: str) -> None:
    """Whatever the script's language is."""
    found = {file: text for file, text in outputs().items() if not file.startswith(f"{name}-")}
    (line,) = scenario.wrong_outputs(SUBMITTED, found)
    assert line.startswith(f"{name}.")


def test_a_log_without_the_output_is_named() -> None:
    """The container's log is a copy of the output."""
    hello = scenario.JOBS[0]
    assert hello.logged
    assert scenario.wrong_log(hello, "Hello from pod slurm-job-1, as alice\n") == []
    assert "log does not say" in scenario.wrong_log(hello, "")[0]


A_DEMO = """
import asyncio, contextlib, sys, time
from penstock_lab.cli import demo
from penstock_lab.demo import demorun
from penstock_lab import actions, bringup, privilege, progress, spec

@contextlib.contextmanager
def listener():
    yield
    if sys.argv[1] == "too early":
        print("running", flush=True)
        time.sleep(60)

async def run(self):
    print("running", flush=True)
    await asyncio.sleep(SECONDS)

progress.listener = listener
demorun.Demo.run = run
privilege.require_root = lambda arguments: None
lab = spec.LabSpec(name="demo", port_base=21000, user="daemon", user_created=False)
bringup.bring_up = lambda *arguments, **more: lab
actions.is_made = lambda place: THERE
actions.take_down = lambda place: print("taken down", flush=True)
demo.demo([])
"""


@pytest.mark.parametrize(
    ("number", "when"),
    [
        (signal.SIGINT, "in time"),
        (signal.SIGTERM, "in time"),
        (signal.SIGHUP, "in time"),
        (signal.SIGTERM, "too early"),
    ],
)
def test_interrupted_demo_leaves_no_lab(number: signal.Signals, when: str) -> None:
    """Also after a closed terminal, and before the first job."""
    argv = [sys.executable, "-c", A_DEMO.replace("SECONDS", "60").replace("THERE", "False"), when]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        child.send_signal(number)
        said, _ = child.communicate(timeout=30)
    assert said == "taken down\n"
    assert child.returncode != 0


@pytest.mark.parametrize("there", [True, False])
def test_a_lab_that_was_there_before_stays(there: bool) -> None:
    """Of a demo with --keep: who tries it again does not lose what is in it."""
    argv = [sys.executable, "-c", A_DEMO.replace("SECONDS", "0").replace("THERE", str(there)), "in time"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert ("taken down" in done.stdout) is not there
    assert ("penstock lab down --name demo" in done.stdout) is there
