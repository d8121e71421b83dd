"""Folders that root creates where users can write, without following their symlinks."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.install import servicefolders


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_folder_is_created_with_its_parents(tmp_path: Path) -> None:
    """Repeatable; a wrong mode is corrected."""
    wanted = tmp_path / "a" / "b" / "submit"
    for _ in range(2):
        servicefolders.make(wanted, 0o1777, os.geteuid())
        assert (mode_of(wanted), mode_of(wanted.parent)) == (0o1777, 0o755)
        wanted.chmod(0o700)


def test_users_symlinks_are_not_followed(tmp_path: Path) -> None:
    """Neither in place of the folder nor above it, where everybody may write."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    nas = tmp_path / "nas"
    nas.mkdir()
    nas.chmod(0o1777)
    (nas / "slurm-jobs").symlink_to(private)
    with pytest.raises(OSError, match="slurm-jobs"):
        servicefolders.make(nas / "slurm-jobs" / "submit", 0o1777, os.geteuid())
    with pytest.raises(OSError, match="slurm-jobs"):
        servicefolders.make(nas / "slurm-jobs", 0o1777, os.geteuid())
    assert mode_of(private) == 0o700
    assert list(private.iterdir()) == []


def test_roots_symlinks_are_followed(tmp_path: Path) -> None:
    """/nas may be a symlink to the mount point; nobody else can have created it."""
    (tmp_path / "mounted").mkdir()
    (tmp_path / "nas").symlink_to("mounted")
    servicefolders.make(tmp_path / "nas" / "results", 0o755, os.geteuid())
    assert mode_of(tmp_path / "mounted" / "results") == 0o755
