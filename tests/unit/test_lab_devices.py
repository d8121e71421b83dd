"""Files that stand for GPUs in a lab."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock_lab import devices

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")


@as_root
def test_a_gpu_is_a_character_device_that_reads_as_empty(tmp_path: Path) -> None:
    """Also in place of a plain file of an earlier lab, and a second time."""
    path = tmp_path / "gpu0"
    path.write_bytes(b"")
    made = devices.make(path)
    if not made:
        pytest.skip("this machine allows no devices here")
    assert stat.S_ISCHR(path.stat().st_mode)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"", 0o644)
    assert devices.make(path)
    assert [each.name for each in tmp_path.iterdir()] == ["gpu0"]


@pytest.mark.parametrize("step", ["mknod", "read"])
def test_without_devices_it_is_a_plain_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A container without CAP_MKNOD, a file system mounted with nodev: Slurm still counts them."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    def pretend(path: Path, *_: object) -> None:
        path.touch()

    monkeypatch.setattr(os, "mknod", refuse if step == "mknod" else pretend)
    if step == "read":
        monkeypatch.setattr(Path, "read_bytes", refuse)
    path = tmp_path / "gpu0"
    assert not devices.make(path)
    assert (stat.S_ISREG(path.stat().st_mode), path.stat().st_size) == (True, 0)
    assert [each.name for each in tmp_path.iterdir()] == ["gpu0"]
