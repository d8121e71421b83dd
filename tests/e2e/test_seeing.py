"""Both worlds in one table: `penstock jobs` and `penstock show`."""

from __future__ import annotations

import asyncio
import datetime
import functools
import json
import os
from typing import Any

from tests.e2e import labs, semantics

from penstock import wellknown
from penstock.views import sources
from penstock_lab import testing

Lab = testing.RunningLab
NOBODY = 65534


def as_json(lab: Lab, *arguments: str) -> Any:
    return json.loads(lab.penstock(*arguments, "--format", "json").stdout)


def shown(lab: Lab, job: str) -> Any:
    """The one job that `show` shows."""
    (found,) = as_json(lab, "show", job)["jobs"]
    return found


def test_a_running_job_is_shown_with_its_pods(lab: Lab) -> None:
    """State on each side, node, image, output, and the steps so far."""
    job_id = lab.sbatch("#!/bin/sh\nsleep 60\n", "-N2", "--nodelist=n1,n2", "--job-name=seen")
    lab.wait_for(job_id, "RUNNING")
    testing.until(lambda: [step["name"] for step in shown(lab, job_id)["timeline"]][-1:] == ["placed"])
    testing.until(lambda: {pod["status"] for pod in shown(lab, job_id)["pods"]} == {"Running"})
    found = shown(lab, job_id)
    assert (found["state"], found["name"], found["nodes"]) == ("RUNNING", "seen", ["n1", "n2"])
    assert found["stdout"] == str(lab.home / f"slurm-{job_id}.out")
    assert [(pod["rank"], pod["node"]) for pod in found["pods"]] == [(0, "n1"), (1, "n2")]
    (listed,) = [job for job in as_json(lab, "jobs")["jobs"] if job["job"] == job_id]
    assert len(listed["pods"]) == 2
    text = lab.penstock("show", job_id).stdout
    assert "placed" in text
    assert "RUNNING 0:0" not in text
    lab.run(("scancel", job_id))
    lab.wait_for(job_id, "CANCELLED")


def test_a_finished_job_keeps_its_story(lab: Lab) -> None:
    """Exit code, no pods, and every step with its time in order."""
    job_id = lab.sbatch("#!/bin/sh\nexit 4\n")
    lab.wait_for(job_id, "FAILED")
    found = shown(lab, job_id)
    assert (found["state"], found["exit_code"], found["signal"], found["pods"]) == ("FAILED", 4, 0, [])
    steps = [(step["name"], step["at"]) for step in found["timeline"]]
    assert [name for name, _ in steps] == ["admitted", "launched", "placed", "ended", "released"]
    assert steps == sorted(steps, key=lambda step: step[1])


def test_the_site_alone_says_where_everything_is(lab: Lab) -> None:
    """$PENSTOCK_SITE leads to slurm.conf, socket and results."""
    job_id = lab.sbatch("#!/bin/sh\n")
    lab.wait_for(job_id, "COMPLETED")
    testing.until(lambda: lab.penstock("results", job_id, check=False).returncode == 0)
    others = (wellknown.ENV_SLURM_CONF, wellknown.ENV_SOCKET, wellknown.ENV_RESULTS, wellknown.ENV_NAS)
    bare = ("env", *(word for name in others for word in ("-u", name)), "penstock")
    for command in (("jobs",), ("show", job_id), ("results", job_id, "--verify"), ("logs", job_id)):
        done = lab.run_as_user((*bare, *command), check=False)
        assert done.returncode == 0, done.stderr


def test_a_job_that_waits_for_penstockd_says_so(lab: Lab) -> None:
    """In its comment, before its owner's own; `jobs` and `show` have Slurm's side and the reason."""
    labs.kill(lab.place, "penstockd")
    try:
        job_id = lab.sbatch("#!/bin/sh\n", "--comment=run 3")
        said = "waits for penstockd, which does not answer [penstock] run 3"
        comment = ("squeue", "--noheader", f"--jobs={job_id}", "--Format=Comment:200")
        testing.until(lambda: lab.run(comment).stdout.strip() == said)
        for command in (("show", job_id), ("jobs",)):
            done = lab.penstock(*command, check=False)
            assert (done.returncode, "penstockd does not answer on" in done.stderr) == (1, True)
            assert job_id in done.stdout
        found = json.loads(lab.penstock("show", job_id, "--format", "json", check=False).stdout)
        assert "penstockd does not answer" in found["problem"]
        assert (found["jobs"][0]["state"], found["jobs"][0]["pods"]) == ("PENDING", None)
    finally:
        lab.penstock("lab", "restart", "penstockd")
    lab.wait_for(job_id, "COMPLETED")


def test_job_details_need_the_owners_uid(lab: Lab) -> None:
    """By the peer's uid: another user sees neither pods nor timeline."""
    job_id = lab.sbatch("#!/bin/sh\nsleep 60\n")
    lab.wait_for(job_id, "RUNNING")
    testing.until(lambda: len(shown(lab, job_id)["timeline"]) == 3)
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
        (view,) = asyncio.run(sources.Socket().describe((int(job_id),))).jobs
        os.write(writing, f"{len(view.pods)} {len(view.timeline)}".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


def test_unknown_jobs_are_one_line_errors(lab: Lab) -> None:
    """An unknown job, an invalid id, and a penstockd that does not answer."""
    for argument, code, words in (("99999", 3, "Slurm knows no job 99999"), ("abc", 2, "is not a job id")):
        result = lab.penstock("show", argument, check=False)
        assert result.returncode == code
        assert words in result.stderr
        assert "Traceback" not in result.stderr


def test_a_name_in_any_script_is_the_same_everywhere(lab: Lab) -> None:
    """squeue, the accounting, the results and `show` have it as it was typed, whatever the asker's locale."""
    name = "훈련_한국어1"
    job_id = lab.sbatch("#!/bin/sh\n", f"--job-name={name}")
    lab.wait_for(job_id, "COMPLETED")
    testing.until(lambda: lab.accounted(job_id, "JobName") == [name])  # a short one is named late there
    testing.until(lambda: lab.penstock("results", job_id, check=False).returncode == 0)
    assert as_json(lab, "results", job_id)["results"][0]["summary"]["name"] == name
    assert shown(lab, job_id)["name"] == name
    assert name in lab.penstock("show", job_id).stdout


def test_a_pending_job_says_why_it_waits(lab: Lab) -> None:
    """In words for its owner, typed for programs, although penstockd has not heard of it."""
    job_id = lab.sbatch("#!/bin/sh\n", "--hold")
    testing.until(lambda: shown(lab, job_id)["state"] == "PENDING")
    reason = shown(lab, job_id)["reason"]
    assert (reason["source"], reason["code"]) == ("slurm", "JobHeldUser")
    assert "is held by its owner" in lab.penstock("show", job_id).stdout
    (listed,) = [job for job in as_json(lab, "jobs")["jobs"] if job["job"] == job_id]
    assert listed["reason"] == reason
    lab.run(("scancel", job_id))


def test_an_array_is_shown_task_by_task(lab: Lab) -> None:
    """Its number means all of them: `show` lists them, `logs` asks which, `jobs` counts them by state."""
    script = "#!/bin/sh\necho task $SLURM_ARRAY_TASK_ID\n[ $SLURM_ARRAY_TASK_ID = 1 ] || sleep 60\n"
    array = lab.sbatch(script, "--array=1-9%1")
    testing.until(lambda: "RUNNING" in lab.run(("squeue", "-h", "-j", f"{array}_2", "-o", "%T")).stdout)
    lab.wait_for(f"{array}_1", "COMPLETED")  # the next starts while its pod is still going
    states = {job["job"]: job["state"] for job in as_json(lab, "show", array)["jobs"]}
    assert states == {f"{array}_1": "COMPLETED", f"{array}_2": "RUNNING", f"{array}_[3-9%1]": "PENDING"}
    said = lab.penstock("show", array).stdout
    assert f"array {array}" in said
    assert "1 COMPLETED, 1 RUNNING, 7 PENDING" in said
    assert shown(lab, f"{array}_1")["state"] == "COMPLETED"
    assert shown(lab, f"{array}_5")["state"] == "PENDING"
    which = lab.penstock("logs", array, check=False)
    assert (which.returncode, which.stdout) == (2, "")
    assert f"job {array} is an array: which of its tasks?" in which.stderr
    assert lab.penstock("logs", f"{array}_1").stdout == "task 1\n"
    (line,) = [line for line in lab.penstock("jobs").stdout.split("\n") if line.startswith(f"{array}_")]
    assert "1 RUNNING, 7 PENDING" in line
    lab.run(("scancel", array))


def test_a_pipe_has_one_job_in_one_line(lab: Lab) -> None:
    """However long its name is: nothing is folded at eighty columns."""
    name = "n" * 150
    job_id = lab.sbatch("#!/bin/sh\n", "--hold", f"--job-name={name}")
    (line,) = [line for line in lab.penstock("jobs").stdout.split("\n") if line.startswith(f"{job_id} ")]
    assert line.split()[:3] == [job_id, lab.user, name]
    lab.run(("scancel", job_id))


def test_logs_say_by_their_exit_code_what_became_of_the_job(lab: Lab) -> None:
    """Followed to a failure: 1. No output, because it waits, was cancelled, or is not known: 3."""
    cwd = semantics.folder(lab)
    failing = lab.sbatch("#!/bin/sh\necho before\nsleep 2\nexit 3\n", cwd=cwd)
    held = lab.sbatch("#!/bin/sh\n", "--hold", cwd=cwd)
    followed = lab.run_as_user(("penstock", "logs", "-f", failing), check=False, timeout=120)
    assert (followed.returncode, followed.stdout) == (1, "before\n")
    assert f"job {failing} is FAILED 3:0" in followed.stderr
    assert lab.run_as_user(("penstock", "logs", failing)).stdout == "before\n"
    waiting = lab.run_as_user(("penstock", "logs", held), check=False)
    assert (waiting.returncode, "is PENDING" in waiting.stderr) == (3, True)
    lab.run(("scancel", held))
    semantics.record(lab, held)
    for job_id, words in ((held, "is CANCELLED"), ("99999", "knows no job 99999")):
        silent = lab.run_as_user(("penstock", "logs", "-f", job_id), check=False)
        assert (silent.returncode, silent.stdout, words in silent.stderr) == (3, "", True)


def test_times_are_the_readers_with_date_and_zone(lab: Lab) -> None:
    """In `show` and `results` alike; programs get UTC."""
    job_id = lab.sbatch("#!/bin/sh\n")
    lab.wait_for(job_id, "COMPLETED")
    testing.until(lambda: lab.penstock("results", job_id, check=False).returncode == 0)
    ended = datetime.datetime.fromisoformat(shown(lab, job_id)["ended"])
    assert ended.utcoffset() == datetime.timedelta(0)
    local = ended.astimezone(datetime.timezone(datetime.timedelta(hours=9)))
    for command in ("show", "results"):
        printed = lab.run(("env", "TZ=KST-9", "penstock", command, job_id)).stdout
        (line,) = [line for line in printed.split("\n") if line.split()[:1] == ["ended"]]
        assert line.split()[1:] == [*f"{local:%Y-%m-%d %H:%M:%S}".split(), "KST"]


def test_jobs_of_others_are_said_to_be_so(lab: Lab) -> None:
    """Not that they have no pods."""
    job_id = lab.sbatch("#!/bin/sh\nsleep 60\n")
    lab.wait_for(job_id, "RUNNING")
    testing.lab_command(lab.place, "adduser", labs.GUEST)
    guest = functools.partial(lab.run_as_user, user=labs.GUEST)
    assert "hidden (another user's)" in guest(("penstock", "show", job_id)).stdout
    (line,) = [line for line in guest(("penstock", "jobs")).stdout.split("\n") if line.startswith(job_id)]
    assert line.rstrip().endswith("hidden (another user's)")
    assert (
        json.loads(guest(("penstock", "show", job_id, "--format", "json")).stdout)["jobs"][0]["pods"] is None
    )
    lab.run(("scancel", job_id))
