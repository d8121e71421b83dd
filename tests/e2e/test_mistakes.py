"""What people mistype or misjudge in scripts: what sbatch and `penstock validate` say, and whether the advice
is true when it is followed. The real sbatch is the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e import semantics

from penstock_lab import testing

Lab = testing.RunningLab
IDLE = "the pods on the others stay idle, with their GPUs"


@pytest.fixture
def script(lab: Lab) -> Iterator[Path]:
    """A file of the lab's user: sbatch shows findings of files."""
    path = lab.home / "mistaken.sh"
    yield path
    path.unlink(missing_ok=True)


def submitted(lab: Lab, path: Path, text: str, *options: str) -> testing.Result:
    """What sbatch says of a script with these lines before its command; a job that it makes is ended."""
    path.write_text(f"#!/bin/sh\n{text}\nhostname\n")
    said = lab.run_as_user(("sbatch", "--parsable", "--hold", *options, str(path)), check=False)
    if said.returncode == 0:
        lab.run(("scancel", said.stdout.strip()))
    return said


def advised(lab: Lab, path: Path) -> str:
    return lab.run_as_user(("penstock", "validate", str(path)), check=False).stdout


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("#SBATCH --mem=16 G", "--mem=16G"),
        ("#SBATCH -mem=4G", "--mem=4G"),
        ("#K8S_IMAGE = lab/host-userland:1", "#K8S_IMAGE=lab/host-userland:1"),
        ("#SBATCH --gres=gpu:1\r", "save it with Unix line breaks (LF)"),
    ],
)
def test_hints_of_validate_are_accepted_by_sbatch(lab: Lab, script: Path, wrong: str, right: str) -> None:
    """From `penstock validate`, since sbatch reads some lines before any plugin."""
    refused = submitted(lab, script, wrong)
    assert (refused.returncode > 0, refused.stdout) == (True, "")
    hints = [line for line in advised(lab, script).split("\n") if line.startswith("  hint: ")]
    assert [right in hint for hint in hints] == [True]
    line = wrong.strip("\r") if "line breaks" in right else right
    taken = submitted(lab, script, line if line.startswith("#") else f"#SBATCH {line}")
    assert (taken.returncode, taken.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("# SBATCH --gres=gpu:1", "#SBATCH"),
        ("  #SBATCH --gres=gpu:1", "#SBATCH"),
        ("#k8s_image=x/y:1", "#K8S_IMAGE=x/y:1"),
        ("# K8S_IMAGE=x/y:1", "#K8S_IMAGE=x/y:1"),
    ],
)
def test_almost_directive_is_reported_at_sbatch(lab: Lab, script: Path, line: str, meant: str) -> None:
    """sbatch takes the job without what the line asks for."""
    taken = submitted(lab, script, line)
    assert taken.returncode == 0
    assert "warning[almost-directive]" in taken.stderr
    assert f"if a directive is meant, write {meant} at the start of the line" in taken.stderr
    assert "1 script accepted, 1 warning" in advised(lab, script)


@pytest.mark.parametrize(("line", "what"), [("-o $HOME/x", "variables"), ("-e ~/x", "~")])
def test_unexpanded_variables_are_reported_at_sbatch(lab: Lab, script: Path, line: str, what: str) -> None:
    """The job would write to a folder with that name."""
    taken = submitted(lab, script, f"#SBATCH {line}")
    assert taken.returncode == 0
    assert f"Slurm does not expand {what}" in taken.stderr


@pytest.mark.parametrize("way", ["file", "stdin", "wrap"])
def test_idle_nodes_are_reported_once_at_sbatch(lab: Lab, script: Path, way: str) -> None:
    """However the job is submitted; not for one node or partitions without pods."""
    script.write_text("#!/bin/sh\nhostname\n")
    words = {"file": (str(script),), "stdin": (), "wrap": ("--wrap=hostname",)}[way]
    stdin = "#!/bin/sh\nhostname\n" if way == "stdin" else ""
    for options, times in ((("-N2",), 1), (("-N1",), 0), (("-N2", "--partition=host"), 0)):
        argv = ("sbatch", "--parsable", "--hold", *options, *words)
        said = lab.run_as_user(argv, stdin=stdin)
        lab.run(("scancel", said.stdout.strip()))
        assert said.stderr.count("idle") == times
        assert (IDLE in said.stderr) == bool(times)


def test_gpus_of_several_nodes_are_accepted_and_said_to_be_so(lab: Lab, script: Path) -> None:
    """Eight, where a node has four: Slurm gives two nodes, and validate knew."""
    script.write_text("#!/bin/sh\n#SBATCH --gpus=8 --time=5\nhostname\n")
    said = advised(lab, script)
    assert "warning[idle-pods]: the script runs in the first of 2 pods" in said
    assert "1 script accepted" in said
    job_id = lab.sbatch("#!/bin/sh\necho $SLURM_NNODES\n", "--gpus=8", f"--chdir={semantics.folder(lab)}")
    assert semantics.record(lab, job_id) == semantics.Record("COMPLETED", "0:0")
    assert lab.accounted(job_id, "NNodes") == ["2"]
