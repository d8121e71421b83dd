"""Diagnostics of #PBS and #BSUB lines. Their translation is compared with sbatch by scripts.json."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sbatch import compiler
from penstock.sbatch.diagnostics import Diagnostic


def compiled(header: str, **words: object) -> compiler.Compilation:
    return compiler.compile_script(f"#!/bin/bash\n{header}\nhostname\n".encode(), **words)  # type: ignore[arg-type]  # passed on as they are


def codes(header: str) -> list[str]:
    return [found.code for found in compiled(header).diagnostics]


def only(header: str, code: str) -> Diagnostic:
    (found,) = [found for found in compiled(header).diagnostics if found.code == code]
    return found


def test_translation_is_reported_once() -> None:
    """One warning for all lines."""
    found = only("#PBS -N job\n#PBS -l nodes=2:ppn=4,mem=4gb", "foreign-directive")
    assert (found.line, found.severity) == (2, "warning")
    assert "--job-name=job, --nodes=2, --ntasks=8, --mem=4g" in found.message


def test_provenance_has_line_and_option() -> None:
    spec = compiled("#SBATCH -N1\n#PBS -l nodes=2").spec
    assert spec is not None
    assert spec.nodes.minimum == 2
    assert (spec.provenance["nodes"].name, spec.provenance["nodes"].line) == ("#PBS -l", 3)


def test_precedence() -> None:
    """Script < #PBS < environment < command line."""
    header = "#SBATCH -J script\n#PBS -N pbs"
    names = [
        compiled(header),
        compiled(header, variables={"SBATCH_JOB_NAME": "env"}),
        compiled(header, variables={"SBATCH_JOB_NAME": "env"}, arguments=["-J", "line"]),
        compiled(header, variables={"SBATCH_IGNORE_PBS": "1"}),
    ]
    assert [done.spec.name for done in names if done.spec] == ["pbs", "env", "line", "script"]


@pytest.mark.parametrize(
    ("line", "warned"),
    [
        ("#BSUB -W 1:30", True),
        ("#BSUB -W 90", False),
        ("#PBS -l walltime=3600", True),
        ("#PBS -l walltime=1:00:00", False),
        ("#PBS -p 100", True),
        ("#PBS -v A=1", True),
        ("#PBS -N x", False),
    ],
)
def test_differing_meaning_is_reported(line: str, warned: bool) -> None:
    assert ("foreign-meaning" in codes(line)) is warned


def test_bsub_disables_pbs() -> None:
    assert only("#PBS -N a\n#BSUB -J b", "foreign-ignored").line == 2


def test_unknown_options_are_errors_with_a_hint() -> None:
    """sbatch refuses the script; the hint names --ignore-pbs."""
    found = only("#BSUB -R 'rusage[mem=4]'", "unknown-option")
    assert (found.line, found.column) == (2, 7)
    assert "--ignore-pbs" in found.hint


def test_heterogeneous_job_reports_lines_once() -> None:
    """They apply to every component."""
    done = compiled("#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n#PBS -N job")
    assert [spec.name for spec in done.components] == ["job", "job"]
    assert [found.code for found in done.diagnostics].count("foreign-directive") == 1


@pytest.mark.parametrize(
    ("lines", "gpus"),
    [
        ("#PBS -l nodes=2:gpus=2", "gres:gpu:2"),
        ("#SBATCH --gpus-per-node=1\n#PBS -l nodes=2:gpus=2", "gres:gpu:2"),
        ("#PBS -l nodes=1:gpus=1+1:gpus=2", "gres:gpu:2"),
        ("#SBATCH --gres=gpu:1\n#PBS -l nodes=2:gpus=2", "gres:gpu:2,gres:gpu:1"),
        ("#SBATCH --gpus-per-node=1\n#PBS -l nodes=2,accelerator=true", "gres:gpu:1,gres:gpu:1"),
    ],
)
def test_gpus_of_pbs_nodes(lines: str, gpus: str) -> None:
    """They become --gpus-per-node, and the last one counts; accelerators are added to --gres."""
    done = compiled(lines)
    assert done.spec is not None
    assert done.spec.gres.per_node_text == gpus


@given(st.sampled_from(["PBS", "BSUB"]), st.text(max_size=200))
def test_any_text_is_accepted(system: str, text: str) -> None:
    data = f"#!/bin/sh\n#{system} {text}\n".encode("utf-8", "surrogatepass")
    done = compiler.compile_script(data)
    assert done.ok == (done.spec is not None)


MANY = {
    "bare": "#PBS",
    "gpus": "#PBS -l nodes=1:gpus=1",
    "resources": "#PBS -N x -l " + "mem=1," * 300,
    "unknown": "#BSUB -n 4 -Z",
    "wide": "#PBS " + "-Z " * 9000,
    "long": "#PBS -l " + "nodes=1:gpus=1," * 250_000,
    "own": "#SBATCH " + "--zork " * 9000,
    "own, one a line": "#SBATCH --zork",
}


@pytest.mark.parametrize("line", MANY.values(), ids=MANY)
def test_many_lines_are_fast(line: str) -> None:
    """Under a second."""
    script = "#!/bin/sh\n" + f"{line}\n" * max(3_900_000 // (len(line) + 1), 1)
    began = time.process_time()
    compiler.compile_script(script.encode())
    assert time.process_time() - began < 1
