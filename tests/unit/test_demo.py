"""What the demo takes for right and wrong: it must be able to fail."""

from __future__ import annotations

import pytest

from penstock.demo import scenario

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


def test_all_is_well() -> None:
    """Nothing is complained of."""
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
    assert scenario.wrong_log(hello, "Hello from pod slurm-1-0-0, as alice\n") == []
    assert "log does not say" in scenario.wrong_log(hello, "")[0]
