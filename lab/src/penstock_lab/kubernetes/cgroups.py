"""The cgroups of a cluster's containers: made before a kubelet looks for them, removed at the end.

With cgroup v1 each controller has a tree of its own and every one needs the directory; with v2 there is one
tree, whose controllers must be handed down. Every process of every container is in them, which is how
whatever is left of a cluster is found and ended.
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
"""Processes that are held at once: each takes a descriptor, of which we may have a thousand."""


def make(name: str, *, root: Path = ROOT) -> None:
    """The cgroup `name` (with parts divided by `/`) in every tree that a kubelet looks at."""
    for tree in trees(root):
        if tree != root and (tree / "cgroup.controllers").exists():
            continue  # v2 beside v1, which has the controllers
        place = tree
        for part in name.split("/"):
            parent, place = place, place / part
            place.mkdir(exist_ok=True)
            _hand_down(parent, place)


def remove(name: str, *, root: Path = ROOT, rounds: int = 100) -> None:
    """End every process in the cgroup, in all trees, and remove it; nothing to do where it is not."""
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
    """The tops of all trees: one with cgroup v2, one for each controller with v1, as far as it is mounted."""
    if (root / "cgroup.controllers").exists():
        return [root]
    if not root.is_dir():
        return []
    return [path for path in sorted(root.iterdir()) if not path.is_symlink() and (path / _PROCESSES).exists()]


def writable(tree: Path) -> bool:
    """Whether cgroups can be made there, found out by making one."""
    trial = tree / f"penstock-trial-{os.getpid()}"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return True


def processes_in(top: Path) -> set[int]:
    """Pids of all processes in the cgroup and below it; those outside of our pid namespace are shown as 0,
    which to a signal would mean ourselves.
    """
    words = {word for folder in _with_descendants(top) for word in _read(folder / _PROCESSES).split()}
    return {int(word) for word in words} - {0}


def _kill_all(top: Path) -> None:
    pids = sorted(processes_in(top))
    for first in range(0, len(pids), _AT_ONCE):
        _kill(top, pids[first : first + _AT_ONCE])


def _kill(top: Path, pids: list[int]) -> None:
    """A pidfd keeps each pid from reuse while a second look makes sure that its process is still in there."""
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
    """Controllers and CPU sets are not inherited by themselves."""
    if (parent / "cgroup.subtree_control").exists():
        for controller in _read(parent / "cgroup.controllers").split():
            _try_to_enable(parent, controller)
    for name in _INHERITED_CPUSET:
        if (place / "cgroup.clone_children").exists() and (place / name).exists() and not _read(place / name):
            (place / name).write_text(_read(parent / name))
    if (place / "cpuset.cpus").exists() and (place / "cgroup.clone_children").exists():
        (place / "cgroup.clone_children").write_text("1")


def _try_to_enable(place: Path, controller: str) -> None:
    """A controller that v1 has taken, or that real-time processes forbid, is not to be had: so be it."""
    with contextlib.suppress(OSError):
        (place / "cgroup.subtree_control").write_text(f"+{controller}")


def _removed(top: Path) -> bool:
    """Whether the cgroup is gone after an attempt to remove it, the innermost parts first."""
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
