"""cli_filter.lua inside the real sbatch: it needs the program and its plugin, no running Slurm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.lab import testing as lab_testing
from penstock.render import clifilter

GOOD = "#!/bin/sh\n#SBATCH -p gpu\n#K8S_IMAGE=a/b:1\nhostname\n"
WRONG = "#!/bin/sh\n#SBATCH -p gpu\n#K8S_IMGAE=a/b:1\nhostname\n"


@pytest.fixture(scope="module")
def filtered(lab: lab_testing.RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lab's slurm.conf with the filter, on a port nobody listens on: submissions end after the filter."""
    folder = tmp_path_factory.mktemp("filter")
    changed = {"SlurmctldPort": "9", "MessageTimeout": "1"}
    lines = ["CliFilterPlugins=lua"]
    for line in lab.place.slurm_conf.read_text(encoding="utf-8").splitlines():
        name = line.partition("=")[0]
        lines.append(f"{name}={changed[name]}" if name in changed else line)
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "gres.conf").write_bytes(lab.place.gres_conf.read_bytes())
    program = folder / "pen'stock"
    program.write_text(f'#!/bin/sh\necho x >> {folder}/calls\nexec {sys.executable} -m penstock "$@"\n')
    program.chmod(0o755)
    text = clifilter.render_cli_filter(
        penstock=str(program), bridged_partitions=("gpu", "cpu"), default_partition="gpu"
    )
    (folder / "cli_filter.lua").write_text(text, encoding="utf-8")
    return folder


def submit(
    lab: lab_testing.RunningLab, folder: Path, text: str, *options: str
) -> subprocess.CompletedProcess[str]:
    """sbatch with the filter in place."""
    script = folder / "my job's.sh"
    script.write_text(text, encoding="utf-8")
    (folder / "calls").unlink(missing_ok=True)
    argv = ("env", f"SLURM_CONF={folder}/slurm.conf", "sbatch", *options, str(script))
    return lab.run(argv, check=False)


def test_a_wrong_script_ends_with_the_diagnostic(lab: lab_testing.RunningLab, filtered: Path) -> None:
    """The user of sbatch reads what `penstock validate` says, and nothing is sent."""
    said = submit(lab, filtered, WRONG).stderr
    assert "error[unknown-directive]: #K8S_IMGAE is not known" in said
    assert "did you mean #K8S_IMAGE?" in said
    assert "Unable to contact" not in said


def test_a_good_script_goes_on(lab: lab_testing.RunningLab, filtered: Path) -> None:
    """The filter lets it through to slurmctld."""
    assert "Unable to contact" in submit(lab, filtered, GOOD).stderr
    assert (filtered / "calls").exists()


def test_other_partitions_cost_nothing(lab: lab_testing.RunningLab, filtered: Path) -> None:
    """For a partition without pods no program is started."""
    assert "Unable to contact" in submit(lab, filtered, WRONG, "-p", "host").stderr
    assert not (filtered / "calls").exists()
