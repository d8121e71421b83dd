"""What kind of file system a path lies on, as the kernel's table of mounts says.

Two questions depend on it: a database with a write-ahead log must not lie on a network file system, and
inotify tells of other hosts' writes on none of them.
"""

from __future__ import annotations

import os
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")
SHARED = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "9p", "afs"))
CLUSTERED = frozenset(("ceph", "glusterfs", "lustre", "gpfs", "beegfs", "orangefs", "pvfs2", "ocfs2", "gfs2"))
_FUSE_LOCAL = frozenset(("fuseblk", "fuse.fuse-overlayfs"))


def kind_of(path: Path) -> str:
    """The file system's type (ext4, nfs4, fuse.sshfs, …) under `path`, which must exist."""
    return kind_in(os.fsdecode(MOUNTINFO.read_bytes()), path.resolve())


def kind_in(table: str, path: Path) -> str:
    """The same, from the text of a table of mounts; of several at one place the last is seen.

    Names of other people's mounts may hold whatever Python takes for the end of a line, or for a blank.
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
    """Whether others may write there without this host's knowledge."""
    return kind in SHARED | CLUSTERED or (kind.startswith("fuse") and kind not in _FUSE_LOCAL)


def _plain(text: str) -> str:
    """The kernel writes blanks and the like as three octal digits."""
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text
