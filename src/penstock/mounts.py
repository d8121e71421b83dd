"""The type of the file system of a path, from the kernel's mount table.

Needed twice: a database with a write-ahead log must not be on a network file system, and inotify reports no
writes of other hosts.
"""

from __future__ import annotations

import os
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")
SHARED = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "9p", "afs"))
CLUSTERED = frozenset(("ceph", "glusterfs", "lustre", "gpfs", "beegfs", "orangefs", "pvfs2", "ocfs2", "gfs2"))
_FUSE_LOCAL = frozenset(("fuseblk", "fuse.fuse-overlayfs"))


def kind_of(path: Path) -> str:
    """The file system's type (ext4, nfs4, fuse.sshfs, …) for `path`, which must exist."""
    return kind_in(os.fsdecode(MOUNTINFO.read_bytes()), path.resolve())


def kind_in(table: str, path: Path) -> str:
    """The same, from a mount table's text; of several mounts at one place the last is visible.

    Names of other mounts may contain anything that Python takes for a line break or a blank.
    """
    best, kind = -1, ""
    for line in table.split("\n"):
        left, _, right = line.partition(" - ")
        fields, what = left.split(" "), right.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = Path(_plain(fields[4]))
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), what[0]
    return kind


def is_network(kind: str) -> bool:
    """Whether other hosts may write there."""
    return kind in SHARED | CLUSTERED or (kind.startswith("fuse") and kind not in _FUSE_LOCAL)


def _plain(text: str) -> str:
    """Undo the kernel's octal escapes of blanks and the like."""
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text
