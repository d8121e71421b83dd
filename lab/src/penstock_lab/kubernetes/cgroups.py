"""The cgroups of a cluster's containers: made before a kubelet needs them, removed at the end.

With cgroup v1 each controller has its own tree, and each tree needs the directory; with v2 there is one tree,
and controllers must be enabled for children. Every process of every container is in these cgroups, so they
are also how a cluster's remaining processes are found and killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from penstock import errors

ROOT = Path("/sys/fs/cgroup")
_PROCESSES = "cgroup.procs"
_INHERITED_CPUSET = ("cpuset.cpus", "cpuset.mems")
_AT_ONCE = 256
"""Pidfds open at once; the limit is usually a thousand."""


def make(name: str, *, root: Path = ROOT) -> None:
    """Make the cgroup `name` (components separated by `/`) in every tree that a kubelet uses."""
    for tree in trees(root):
        if tree != root and (tree / "cgroup.controllers").exists():
            continue  # v2 beside v1: v1 has the controllers
        place = tree
        for part in name.split("/"):
            parent, place = place, place / part
            place.mkdir(exist_ok=True)
            _hand_down(parent, place)


def remove(name: str, *, root: Path = ROOT, rounds: int = 100) -> None:
    """Kill every process in the cgroup, in all trees, and remove it if it exists."""
    tops = [tree / name for tree in trees(root) if (tree / name).is_dir()]
    for _ in range(rounds):
        for top in tops:
            _kill_all(top)
        tops = [top for top in tops if not _removed(top)]
        if not tops:
            return
        time.sleep(0.05)
    raise errors.LabError(f"the cgroup {tops[0]} does not become empty")


def trees(root: Path = ROOT) -> list[Path]:
    """The roots of all mounted trees: one with cgroup v2, one per controller with v1."""
    if (root / "cgroup.controllers").exists():
        return [root]
    if not root.is_dir():
        return []
    return [path for path in sorted(root.iterdir()) if not path.is_symlink() and (path / _PROCESSES).exists()]


def writable(tree: Path) -> bool:
    """Whether cgroups can be made there; tries it."""
    trial = tree / f"penstock-trial-{os.getpid()}"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return True


def processes_in(top: Path) -> set[int]:
    """Pids in the cgroup and below. The kernel shows processes outside our pid namespace as 0, which kill(2)
    would take for our own process group.
    """
    words = {word for folder in _with_descendants(top) for word in _read(folder / _PROCESSES).split()}
    return {int(word) for word in words} - {0}


def _kill_all(top: Path) -> None:
    pids = sorted(processes_in(top))
    for first in range(0, len(pids), _AT_ONCE):
        _kill(top, pids[first : first + _AT_ONCE])


def _kill(top: Path, pids: list[int]) -> None:
    """Pidfds prevent pid reuse; a second read then confirms that each process is still in the cgroup."""
    found = {}
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                found[pid] = os.pidfd_open(pid)
        for pid in found.keys() & processes_in(top):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(found[pid], signal.SIGKILL)
    finally:
        for descriptor in found.values():
            os.close(descriptor)


def _hand_down(parent: Path, place: Path) -> None:
    """Enable controllers and copy CPU sets: children do not inherit them."""
    if (parent / "cgroup.subtree_control").exists():
        for controller in _read(parent / "cgroup.controllers").split():
            _try_to_enable(parent, controller)
    for name in _INHERITED_CPUSET:
        if (place / "cgroup.clone_children").exists() and (place / name).exists() and not _read(place / name):
            (place / name).write_text(_read(parent / name))
    if (place / "cpuset.cpus").exists() and (place / "cgroup.clone_children").exists():
        (place / "cgroup.clone_children").write_text("1")


def _try_to_enable(place: Path, controller: str) -> None:
    """Fails for controllers that v1 uses or that real-time processes block; they are left out."""
    with contextlib.suppress(OSError):
        (place / "cgroup.subtree_control").write_text(f"+{controller}")


def _removed(top: Path) -> bool:
    """Try to remove the cgroup, innermost parts first; whether it is gone."""
    for folder in sorted(_with_descendants(top), key=lambda path: len(path.parts), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
    return not top.exists()


def _with_descendants(top: Path) -> Iterator[Path]:
    for folder, _, _ in os.walk(top):
        yield Path(folder)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
