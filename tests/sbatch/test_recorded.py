"""Agreement with sbatch where no Slurm is at hand: its recorded answers.

cases.json holds one directive a line with what sbatch 22.05.8 and slurmctld answered (accepted or not, and
what `scontrol show job` said); scripts.json whole scripts (a character a byte) in the manner of computing
sites, with #PBS and #BSUB lines, odd bytes and odd quotes, and the arguments that make them fit the lab. The
same are put to a live Slurm in tests/e2e/test_compiler_oracle.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.sbatch import oracle

from penstock.sbatch import compiler

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))

SCRIPTS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("scripts.json").read_text(encoding="utf-8")
)


def _compile(directive: str) -> compiler.Compilation:
    script = f"#!/bin/bash\n#SBATCH {directive}\nhostname\n".encode()
    return compiler.compile_script(script, name="s.sh")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["directive"])
def test_verdict_is_as_recorded(case: dict[str, Any]) -> None:
    """Accepted if and only if sbatch accepted it."""
    done = _compile(case["directive"])
    assert done.ok == case["accepted"], done.diagnostics


@pytest.mark.parametrize(
    "case", [case for case in CASES if "job" in case], ids=lambda case: case["directive"]
)
def test_job_is_as_recorded(case: dict[str, Any]) -> None:
    """The JobSpec equals what `scontrol show job` showed."""
    spec = _compile(case["directive"]).spec
    assert spec is not None
    assert oracle.differences(spec, case["job"], default_time=60) == {}


def _script(case: dict[str, Any]) -> str:
    return str(case["script"])[:60].partition("\n")[2]


@pytest.mark.parametrize("case", SCRIPTS, ids=_script)
def test_script_is_as_recorded(case: dict[str, Any]) -> None:
    """Verdict and job."""
    data = case["script"].encode("latin-1")
    assert compiler.compile_script(data, name="s.sh").ok == case["accepted"]
    if case["accepted"]:
        spec = compiler.compile_script(data, name="s.sh", arguments=case["arguments"]).spec
        assert spec is not None
        assert oracle.differences(spec, case["job"], default_time=60) == {}


def test_difference_is_noticed() -> None:
    """One more task."""
    case = next(case for case in CASES if case["directive"] == "-N2 -n4")
    spec = _compile("-N2 -n5").spec
    assert spec is not None
    assert set(oracle.differences(spec, case["job"], default_time=60)) == {"tasks", "cpus"}
