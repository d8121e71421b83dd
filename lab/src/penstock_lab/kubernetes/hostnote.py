"""Host settings that clusters change: saved by the first cluster, restored with the last one.

The CNI plugin enables IP forwarding on the host, and shims and kubelets share directories with all others on
the host. Only the first cluster sees the original state, so the note does not belong to a single lab. One of
the directories survives a reboot, so the note does too; the setting does not.
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
"""Innermost first."""


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """The machine's state before any cluster."""

    boot: str
    forwarding: str
    missing: tuple[str, ...]


def remember(cluster: layout.Cluster) -> None:
    """Save the original state unless it is saved; the cluster's cgroup marks it as a user of the settings."""
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
    """Restore the original state if no cluster is left."""
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
                with contextlib.suppress(OSError):  # in use by others
                    folder.rmdir()
        NOTE.unlink()


@contextlib.contextmanager
def _note() -> Iterator[int]:
    """Open and lock the note; opens it again if it was removed while we waited for the lock."""
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
    """None if the note is empty or incomplete."""
    try:
        return msgspec.json.decode(os.pread(descriptor, 2**16, 0), type=Before)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
