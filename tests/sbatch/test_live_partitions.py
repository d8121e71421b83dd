"""A partition that the site's view does not name is looked up in Slurm, which may have got it since."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click.testing
import pytest

from penstock.cli import validate
from penstock.views import scripts

SITE = """\
cluster: hall
slurm: {conf: /nowhere/slurm.conf, release: "22.05", manage: MANAGE}
registry: {default_image: "base:1"}
node_groups: {all: {nodes: n1, cpus: 8, memory: 8Gi}}
partitions: {k8s: {nodes: [all]}}
"""


class Folder:
    """A site whose slurm.conf is on another host, and a sinfo that says what the test wants."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls = root / "calls"
        self.site("include")

    def site(self, manage: str) -> None:
        (self.root / "site.yaml").write_text(SITE.replace("MANAGE", manage))

    def sinfo(self, text: str) -> None:
        path = self.root / "sinfo"
        path.write_text(f'#!/bin/sh\necho "$SLURM_CONF $*" >> {self.calls}\n{text}\n')
        path.chmod(0o755)

    def validate(self, *named: str) -> str:
        files = []
        for number, name in enumerate(named):
            path = self.root / f"{number}.sh"
            path.write_text(f"#!/bin/sh\n#SBATCH --partition={name}\n#SBATCH --cpus-per-task=64\n")
            files.append(str(path))
        argv = ["--site", str(self.root / "site.yaml"), *files]
        return click.testing.CliRunner().invoke(validate.validate, argv).output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """Nobody was asked before."""
    scripts.live_partitions.cache_clear()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    return Folder(tmp_path)


def test_a_partition_that_slurm_has_is_known(folder: Folder) -> None:
    """How large its nodes are is not, so nothing is said of that; Slurm is asked once for all scripts."""
    folder.sinfo("echo batch; echo k8s")
    said = folder.validate("batch", "batch")
    assert "unknown-partition" not in said
    assert "never-fits" not in said
    assert folder.calls.read_text() == " --noheader --all --format=%R\n"


def test_a_partition_that_slurm_lacks_is_told_with_those_it_has(folder: Folder) -> None:
    """The one that was meant may be one of them."""
    folder.sinfo("echo batch; echo k8s")
    said = folder.validate("batsh")
    assert "there is no partition 'batsh'" in said
    assert "did you mean batch?" in said


@pytest.mark.parametrize(
    "text", ["exit 1", "exec sleep 60", "echo 'Unable to contact slurm controller' >&2; exit 1"]
)
def test_without_an_answer_nothing_is_said(
    folder: Folder, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody waits for it."""
    monkeypatch.setattr(scripts, "SECONDS", 0.3)
    folder.sinfo(text)
    began = time.monotonic()
    assert "unknown-partition" not in folder.validate("batch")
    assert time.monotonic() - began < 10


def test_slurm_is_asked_of_unknown_names_only(folder: Folder) -> None:
    """A check costs no command; what Penstock itself writes is known without one."""
    folder.sinfo("echo batch")
    assert "never-fits" in folder.validate("k8s")
    folder.site("whole")
    assert "there is no partition 'batch'" in folder.validate("batch")
    assert not folder.calls.exists()
