"""What clusters change on the machine itself, noted by the first one and undone with the last one.

Pods reach each other through the host, which the network plugin makes forward packets; shims and kubelets
have directories that are the same for all of a host. What was there before any cluster only the first one
has seen, so the note is none of a single lab's. One of the directories outlives a restart of the machine, and
so does the note; the setting does not.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock_lab import lock, processes
from penstock_lab.kubernetes import cgroups, layout, nodeview

NOTE = Path("/var/lib/penstock-lab-host.json")
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
FOLDERS = (Path("/run/containerd/s"), Path("/run/containerd"), nodeview.DEVICE_PLUGINS)
"""The inner ones first."""


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """The machine without a cluster."""

    boot: str
    forwarding: str
    missing: tuple[str, ...]


def remember(cluster: layout.Cluster) -> None:
    """Note how it was, unless somebody has; from here on the cluster's cgroup says that it needs this."""
    with _note() as descriptor:
        cgroups.make(cluster.cgroup)
        known, boot = _read(descriptor), processes.boot_id()
        if known is None or known.boot != boot:
            earlier = known.missing if known else ()
            missing = tuple(str(path) for path in FOLDERS if str(path) in earlier or not path.exists())
            found = Before(boot=boot, forwarding=FORWARDING.read_text(), missing=missing)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, msgspec.json.encode(found), 0)


def restore() -> None:
    """As it was before all clusters, if none is left."""
    if not NOTE.exists():
        return
    with _note() as descriptor:
        if any(True for tree in cgroups.trees() for _ in tree.glob(f"{layout.CGROUP_PREFIX}*")):
            return
        before = _read(descriptor)
        if before is not None and before.boot == processes.boot_id():
            FORWARDING.write_text(before.forwarding)
        for folder in FOLDERS:
            if before is not None and str(folder) in before.missing:
                with contextlib.suppress(OSError):  # somebody else has put something there
                    folder.rmdir()
        NOTE.unlink()


@contextlib.contextmanager
def _note() -> Iterator[int]:
    """The note, for us alone; one that was removed while we waited for it is no longer the note."""
    while True:
        descriptor = os.open(NOTE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if lock.is_at_its_place(descriptor, NOTE):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _read(descriptor: int) -> Before | None:
    """Nothing when nobody has written it, or only half of it."""
    try:
        return msgspec.json.decode(os.pread(descriptor, 2**16, 0), type=Before)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
