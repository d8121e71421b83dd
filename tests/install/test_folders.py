"""Folders that root makes where users can write: through no link of theirs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.install import servicefolders


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_folder_is_made_with_what_is_above_it(tmp_path: Path) -> None:
    """Twice does no harm, and a mode that is wrong is put right."""
    wanted = tmp_path / "a" / "b" / "submit"
    for _ in range(2):
        servicefolders.make(wanted, 0o1777, os.geteuid())
        assert (mode_of(wanted), mode_of(wanted.parent)) == (0o1777, 0o755)
        wanted.chmod(0o700)


def test_a_users_link_leads_root_nowhere(tmp_path: Path) -> None:
    """Neither in the folder's own place nor above it, where everybody may write."""
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


def test_an_administrators_link_is_followed(tmp_path: Path) -> None:
    """/nas may be a link to where the NAS is mounted: nobody else can have put it there."""
    (tmp_path / "mounted").mkdir()
    (tmp_path / "nas").symlink_to("mounted")
    servicefolders.make(tmp_path / "nas" / "results", 0o755, os.geteuid())
    assert mode_of(tmp_path / "mounted" / "results") == 0o755
