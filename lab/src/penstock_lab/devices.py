"""Device files that stand in for GPUs. They are character devices, because Slurm only counts plain files.

For devices it also sets CUDA_VISIBLE_DEVICES, SLURM_JOB_GPUS and the like, and binds tasks to them. They are
/dev/null under another name: harmless, and empty when read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from penstock_lab import files

NULL = os.makedev(1, 3)


def make(path: Path, *, mode: int = 0o644) -> bool:
    """Make the device; False, and an empty file, where the machine or file system does not allow it."""
    if _is_one(path):
        path.chmod(mode)
        return True
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    try:
        os.mknod(new, stat.S_IFCHR | mode, NULL)
        new.chmod(mode)
        new.read_bytes()  # fails where devices are ignored (mount option nodev)
        new.rename(path)
    except OSError:
        new.unlink(missing_ok=True)
        files.write(path, b"", mode=mode)
        return False
    return True


def _is_one(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == NULL
