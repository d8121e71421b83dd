"""Partitions that the site's view lacks are looked up in Slurm."""

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
    """A site whose slurm.conf is on another host, with a fake sinfo."""

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
    scripts.live_partitions.cache_clear()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    return Folder(tmp_path)


def test_partition_in_slurm_is_known(folder: Folder) -> None:
    """Its nodes' sizes are unknown, so they are not checked; one query serves all scripts."""
    folder.sinfo("echo batch; echo k8s")
    said = folder.validate("batch", "batch")
    assert "unknown-partition" not in said
    assert "never-fits" not in said
    assert folder.calls.read_text() == " --noheader --all --format=%R\n"


def test_partition_missing_in_slurm_is_reported(folder: Folder) -> None:
    """With the existing ones."""
    folder.sinfo("echo batch; echo k8s")
    said = folder.validate("batsh")
    assert "there is no partition 'batsh'" in said
    assert "did you mean batch?" in said


@pytest.mark.parametrize(
    "text", ["exit 1", "exec sleep 60", "echo 'Unable to contact slurm controller' >&2; exit 1"]
)
def test_unknown_partition_is_accepted_without_an_answer(
    folder: Folder, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And without waiting."""
    monkeypatch.setattr(scripts, "SECONDS", 0.3)
    folder.sinfo(text)
    began = time.monotonic()
    assert "unknown-partition" not in folder.validate("batch")
    assert time.monotonic() - began < 10


def test_only_unknown_partitions_are_looked_up(folder: Folder) -> None:
    folder.sinfo("echo batch")
    assert "never-fits" in folder.validate("k8s")
    folder.site("whole")
    assert "there is no partition 'batch'" in folder.validate("batch")
    assert not folder.calls.exists()
