"""#PBS and #BSUB lines: what is said about them. What they mean is asked of sbatch, in scripts.json."""

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


def test_what_they_mean_is_told_once() -> None:
    """One warning for all lines, with the options they become."""
    found = only("#PBS -N job\n#PBS -l nodes=2:ppn=4,mem=4gb", "foreign-directive")
    assert (found.line, found.severity) == (2, "warning")
    assert "--job-name=job, --nodes=2, --ntasks=8, --mem=4g" in found.message


def test_the_field_knows_its_line() -> None:
    """Provenance names the line and the option as it was written."""
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
def test_what_the_systems_read_differently(line: str, warned: bool) -> None:
    """A value that means something else to Slurm is pointed out."""
    assert ("foreign-meaning" in codes(line)) is warned


def test_two_kinds_at_once() -> None:
    """#BSUB switches #PBS off, which hardly anybody means."""
    assert only("#PBS -N a\n#BSUB -J b", "foreign-ignored").line == 2


def test_unknown_options_are_errors_with_a_way_out() -> None:
    """As sbatch refuses the whole script, the line and --ignore-pbs are named."""
    found = only("#BSUB -R 'rusage[mem=4]'", "unknown-option")
    assert (found.line, found.column) == (2, 7)
    assert "--ignore-pbs" in found.hint


def test_components_of_a_heterogeneous_job_repeat_nothing() -> None:
    """The lines hold for every component and are spoken of once."""
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
    """They are --gpus-per-node, which the last one decides; accelerators are added to --gres."""
    done = compiled(lines)
    assert done.spec is not None
    assert done.spec.gres.per_node_text == gpus


@given(st.sampled_from(["PBS", "BSUB"]), st.text(max_size=200))
def test_any_text(system: str, text: str) -> None:
    """Nothing after the magic word makes it fail: there is a job, or an error that says why not."""
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
def test_many_lines_take_no_second(line: str) -> None:
    """A script full of such lines is answered in a second."""
    script = "#!/bin/sh\n" + f"{line}\n" * max(3_900_000 // (len(line) + 1), 1)
    began = time.process_time()
    compiler.compile_script(script.encode())
    assert time.process_time() - began < 1
