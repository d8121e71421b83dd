"""Finding out which Slurm is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.slurm import installed
from penstock.views import scripts


@pytest.mark.parametrize(
    ("program", "version"),
    [
        ("echo slurm-wlm 24.11.5", "24.11.5"),
        ("echo slurm 23.02.7", "23.02.7"),
        ("exit 1", ""),
        ("echo no such thing", ""),
        ("printf '\\377\\n'", ""),
    ],
)
def test_what_sbatch_says(tmp_path: Path, program: str, version: str) -> None:
    """The last word, when it is a version."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(f"#!/bin/sh\n{program}\n")
    sbatch.chmod(0o755)
    assert installed.version(str(tmp_path)) == version


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_sbatch(tmp_path: Path) -> None:
    """Nothing is known, and nothing is left behind."""
    before = _open_files()
    assert installed.version(str(tmp_path)) == ""
    (tmp_path / "sbatch").write_text("no program\n")
    (tmp_path / "sbatch").chmod(0o755)
    assert installed.version(str(tmp_path)) == ""
    assert _open_files() == before


def test_an_sbatch_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for."""
    monkeypatch.setattr(installed, "SECONDS", 0.2)
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\nexec sleep 600\n")
    sbatch.chmod(0o755)
    assert installed.version(str(tmp_path)) == ""


@pytest.mark.parametrize(
    ("version", "asked", "release"),
    [("24.11.5", None, "24.11"), ("24.11.5", "23.02", "23.02"), ("", None, "22.05")],
)
def test_the_release_that_counts(
    monkeypatch: pytest.MonkeyPatch, version: str, asked: str | None, release: str
) -> None:
    """--slurm, else what is installed, else the oldest we know."""
    monkeypatch.setattr(installed, "version", lambda: version)
    check = scripts.Checker.load(site_file=None, release=asked, lint=False, silenced=())
    assert check.context.release == release
