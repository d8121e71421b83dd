"""Both worlds in one table: `penstock jobs` and `penstock show`."""

from __future__ import annotations

import json
import os
from typing import Any

from penstock.cli import asking
from penstock.lab import testing

Lab = testing.RunningLab
NOBODY = 65534


def as_json(lab: Lab, *arguments: str) -> Any:
    return json.loads(lab.penstock(*arguments, "--format", "json").stdout)


def test_a_running_job_is_shown_with_its_pods(lab: Lab) -> None:
    """State on each side, node, image, output, and the steps so far."""
    job_id = lab.sbatch("#!/bin/sh\nsleep 60\n", "-N2", "--nodelist=n1,n2", "--job-name=seen")
    lab.wait_for(job_id, "RUNNING")
    testing.until(
        lambda: [step["name"] for step in as_json(lab, "show", job_id)["timeline"]][-1:] == ["placed"]
    )
    testing.until(lambda: {pod["status"] for pod in as_json(lab, "show", job_id)["pods"]} == {"Running"})
    shown = as_json(lab, "show", job_id)
    assert (shown["slurm"]["state"], shown["slurm"]["name"]) == ("RUNNING", "seen")
    assert shown["slurm"]["stdout"] == str(lab.home / f"slurm-{job_id}.out")
    assert [(pod["rank"], pod["node"]) for pod in shown["pods"]] == [(0, "n1"), (1, "n2")]
    (listed,) = [job for job in as_json(lab, "jobs") if job["slurm"]["shown_id"] == job_id]
    assert len(listed["pods"]) == 2
    text = lab.penstock("show", job_id).stdout
    assert "placed" in text
    lab.run(("scancel", job_id))
    lab.wait_for(job_id, "CANCELLED")


def test_a_finished_job_keeps_its_story(lab: Lab) -> None:
    """Exit code, no pods, and every step with its time in order."""
    job_id = lab.sbatch("#!/bin/sh\nexit 4\n")
    lab.wait_for(job_id, "FAILED")
    shown = as_json(lab, "show", job_id)
    assert (shown["slurm"]["state"], shown["slurm"]["exit_code"], shown["pods"]) == ("FAILED", "4:0", [])
    steps = [(step["name"], step["at"]) for step in shown["timeline"]]
    assert [name for name, _ in steps] == ["admitted", "launched", "placed", "ended", "released"]
    assert steps == sorted(steps, key=lambda step: step[1])


def test_a_job_is_not_told_to_strangers(lab: Lab) -> None:
    """The kernel says who asks: another user sees neither pods nor timeline."""
    job_id = lab.sbatch("#!/bin/sh\nsleep 60\n")
    lab.wait_for(job_id, "RUNNING")
    testing.until(lambda: len(as_json(lab, "show", job_id)["timeline"]) == 3)
    assert _ask_as(0, lab, job_id) == "1 3"
    assert _ask_as(NOBODY, lab, job_id) == "0 0"
    lab.run(("scancel", job_id))


def _ask_as(uid: int, lab: Lab, job_id: str) -> str:
    """How many pods and steps that user is told of, asked by a child that becomes that user."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setuid(uid)
        os.environ["PENSTOCK_SOCKET"] = str(lab.place.penstockd_socket)
        (view,) = asking.describe((int(job_id),))
        os.write(writing, f"{len(view.pods)} {len(view.timeline)}".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


def test_what_is_not_there_is_one_clear_line(lab: Lab) -> None:
    """An unknown job, nonsense, and a penstockd that does not answer."""
    for argument, words in (("99999", "Slurm knows no job 99999"), ("abc", "is not a job id")):
        result = lab.penstock("show", argument, check=False)
        assert result.returncode == 2
        assert words in result.stderr
        assert "Traceback" not in result.stderr


def test_a_name_in_any_script_is_the_same_everywhere(lab: Lab) -> None:
    """squeue, the accounting, the results and `show` have it as it was typed, whatever the asker's locale."""
    name = "훈련_한국어1"
    job_id = lab.sbatch("#!/bin/sh\n", f"--job-name={name}")
    lab.wait_for(job_id, "COMPLETED")
    testing.until(lambda: lab.accounted(job_id, "JobName") == [name])  # a short one is named late there
    testing.until(lambda: lab.penstock("results", job_id, check=False).returncode == 0)
    assert as_json(lab, "results", job_id)[0]["summary"]["name"] == name
    assert as_json(lab, "show", job_id)["slurm"]["name"] == name
    assert name in lab.penstock("show", job_id).stdout
