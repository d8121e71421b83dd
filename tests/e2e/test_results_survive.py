"""Results when things break: collector and penstockd killed, storage away, hooks that fail."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e import labs, semantics
from tests.e2e.test_results import results_of, sha256sum

from penstock import presence, wellknown
from penstock_lab import component, testing

Lab = semantics.Lab


@contextlib.contextmanager
def own_collector(lab: Lab, **changes: object) -> Iterator[None]:
    """In place of the lab's, with other settings."""
    labs.kill(lab.place, "collector")
    config = json.loads(lab.place.collector_conf.read_text()) | changes
    path = lab.place.directory / "collector-test.json"
    path.write_text(json.dumps(config))
    argv = [sys.executable, "-m", "penstock", "collector", "--config", str(path)]
    with (lab.place.log / "collector-test.log").open("ab") as log:
        process = subprocess.Popen(
            argv, stdout=log, stderr=log, env=lab.env | component.python_environment(), cwd="/"
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)
        path.unlink()
        testing.lab_command(lab.place, "up")


def test_killed_collectors_lose_nothing(lab: Lab) -> None:
    """SIGKILL at random moments while jobs end: every folder is whole, none is there twice."""
    rng = random.Random(11)  # noqa: S311  # no secret
    script = '#!/bin/sh\necho $SLURM_JOB_ID; head -c 100000 /dev/urandom >"$PENSTOCK_OUTPUT_DIR/data"\n'
    job_ids = [lab.sbatch(script, "--output=/dev/null") for _ in range(15)]
    for _ in range(4):
        time.sleep(rng.uniform(0.1, 1.0))
        labs.kill(lab.place, "collector")
        testing.lab_command(lab.place, "up")
        assert presence.look(lab.place.attempts / wellknown.COLLECTOR_LOCK).runs  # `up` has waited for it
    for job_id in job_ids:
        job = results_of(lab, job_id)
        assert sha256sum(job.folder) == ""
        assert (job.folder / "outputs" / "data").stat().st_size == 100_000
    # Somebody else's job of a moment ago may be on its way into its folder: so nothing stays unfinished.
    semantics.wait_until(
        lambda: not [name for name in names(lab) if name.endswith((".partial", ".old"))], "all are finished"
    )
    assert not [name for name in names(lab) if "." in name and not name.startswith(".")]


def names(lab: Lab) -> list[str]:
    """All that is in the results folder."""
    return [path.name for path in lab.place.nas_results.iterdir()]


def test_killed_penstockd_loses_no_record(lab: Lab) -> None:
    """Killed while jobs run and end: their results come, with the end that Slurm knows."""
    job_ids = [lab.sbatch(f"#!/bin/sh\nsleep {seconds}; exit 3\n") for seconds in (1, 3, 6)]
    # All have been let in: who is not yet when penstockd goes is sent back, and runs later.
    for job_id in job_ids:
        lab.wait_for(job_id, "RUNNING", "COMPLETING", "FAILED")
    for _ in range(2):
        labs.kill(lab.place, "penstockd")
        time.sleep(1.5)
        testing.lab_command(lab.place, "up")
    for job_id in job_ids:
        job = results_of(lab, job_id, timeout=180)
        assert (job.summary["state"], job.summary["exit_code"]) == ("FAILED", 3)
        assert [pod["name"] for pod in job.summary["pods"]] == [f"slurm-job-{job_id}"]


@contextlib.contextmanager
def mounted(*argv: str, over: Path) -> Iterator[None]:
    """Something else at that place for a while."""
    subprocess.run(["mount", *argv, str(over)], check=True, timeout=60)
    try:
        yield
    finally:
        away = ["umount", str(over)]  # as soon as the collector, which looks into it now and then, does not
        semantics.wait_until(
            lambda: subprocess.run(away, timeout=60, check=False).returncode == 0, f"{over} is unmounted"
        )


def read_only(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True, timeout=60)


def wait_for_log(lab: Lab, text: str, *, since: int) -> None:
    log = lab.place.component_log("collector")
    semantics.wait_until(lambda: text in log.read_bytes()[since:].decode(), f"the collector says {text!r}")


@pytest.mark.parametrize("how", ["unmounted", "read-only"])
def test_storage_outage_is_waited_for(lab: Lab, how: str) -> None:
    """Nothing is written elsewhere or lost, and the log says so."""
    results = lab.place.nas_results
    since = lab.place.component_log("collector").stat().st_size
    argv = ("--bind", str(results)) if how == "read-only" else ("-t", "tmpfs", "-o", "mode=755", "tmpfs")
    with mounted(*argv, over=results):
        if how == "read-only":
            read_only(results)
        job_id = lab.sbatch("#!/bin/sh\necho while away\n")
        semantics.record(lab, job_id)
        words = "Read-only file system" if how == "read-only" else "is its file system mounted?"
        wait_for_log(lab, words, since=since)
        assert not (results / job_id).exists()
        if how == "unmounted":
            assert list(results.iterdir()) == []
    job = results_of(lab, job_id)
    assert "while away" in (job.folder / "stdout.log").read_text()
    assert sha256sum(job.folder) == ""


def test_hooks_that_fail_or_hang_change_nothing(lab: Lab, outside: Path) -> None:
    """Jobs end as they end, results come as they come; the hook is told of each, as nobody."""
    told, hook = outside / "told", outside / "hook"
    hook.write_text(
        f'#!/bin/sh\n(id -un; cat) >>{told}\n[ "$PENSTOCK_STATE" = FAILED ] && sleep 1000\nexit 3\n'
    )
    hook.chmod(0o755)
    with own_collector(lab, hook=str(hook), hook_seconds=5, hook_tries=1, webhook="http://127.0.0.1:1/"):
        first, second = lab.sbatch("#!/bin/sh\nexit 5\n"), lab.sbatch("#!/bin/sh\ntrue\n")
        assert results_of(lab, first).summary["exit_code"] == 5
        assert results_of(lab, second).summary["state"] == "COMPLETED"
        semantics.wait_until(
            lambda: is_told(told, first) and is_told(told, second), "the hook was told of both"
        )
        assert told.read_text().startswith("nobody\n")
        assert semantics.record(lab, first) == semantics.Record("FAILED", "5:0")
        # A collector that is told to stop ends hooks that run, and says nothing of them.
        semantics.wait_for_text(
            lab.place.log / "collector-test.log", "the hook failed, 0 tries left: exit code 3"
        )


def is_told(told: Path, job_id: str) -> bool:
    """Whether the hook was given the job's summary; it may be told of other tests' jobs as well."""
    return told.exists() and f'"attempt_id": "{job_id}-0-' in told.read_text()
