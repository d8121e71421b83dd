"""Detection of the installed Slurm."""

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
def test_version_of_sbatch(tmp_path: Path, program: str, version: str) -> None:
    """The last word, if it is a version."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(f"#!/bin/sh\n{program}\n")
    sbatch.chmod(0o755)
    assert installed.version(str(tmp_path)) == version


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_sbatch(tmp_path: Path) -> None:
    """The version is unknown."""
    before = _open_files()
    assert installed.version(str(tmp_path)) == ""
    (tmp_path / "sbatch").write_text("no program\n")
    (tmp_path / "sbatch").chmod(0o755)
    assert installed.version(str(tmp_path)) == ""
    assert _open_files() == before


def test_hanging_sbatch_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "SECONDS", 0.2)
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\nexec sleep 600\n")
    sbatch.chmod(0o755)
    assert installed.version(str(tmp_path)) == ""


@pytest.mark.parametrize(
    ("version", "asked", "release"),
    [("24.11.5", None, "24.11"), ("24.11.5", "23.02", "23.02"), ("", None, "22.05")],
)
def test_choice_of_release(
    monkeypatch: pytest.MonkeyPatch, version: str, asked: str | None, release: str
) -> None:
    """--slurm, else the installed one, else the oldest supported."""
    monkeypatch.setattr(installed, "version", lambda: version)
    check = scripts.Checker.load(site_file=None, release=asked, lint=False, silenced=())
    assert check.context.release == release
