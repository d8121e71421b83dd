"""Memory limits through cgroups, version 2 or 1; where none is writable we say so."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

UNIFIED = Path("/sys/fs/cgroup")
LEGACY = Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True, slots=True)
class Group:
    """One container's cgroup."""

    path: Path

    @property
    def members(self) -> Path:
        return self.path / "cgroup.procs"

    def was_out_of_memory(self) -> bool:
        """Has the kernel killed a process in here for memory?"""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                words = (line.split() for line in (self.path / name).read_text().splitlines())
                return any(word[0] == "oom_kill" and int(word[1]) > 0 for word in words)
        return False

    def remove(self) -> None:
        """Its processes are gone or going; the kernel refuses while the last one is being taken apart."""
        deadline = time.monotonic() + 1
        while self.path.exists():
            try:
                self.path.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.002)


def name_for(data_dir: Path) -> str:
    return "penstock-" + hashlib.sha256(str(data_dir.resolve()).encode()).hexdigest()[:12]


class Cgroups:
    """The parent of all our cgroups, named after the data directory so that two clusters do not meet."""

    def __init__(self, data_dir: Path) -> None:
        self._legacy = not (UNIFIED / "cgroup.controllers").exists()
        self._parent = (LEGACY if self._legacy else UNIFIED) / name_for(data_dir)
        self.problem = self._prepare()

    def _prepare(self) -> str:
        """Make the parent; the answer is why that is not possible, or nothing."""
        try:
            self.remove_all()
            self._parent.mkdir()
            if not self._legacy:
                (self._parent / "cgroup.subtree_control").write_text("+memory")
        except OSError as error:
            return f"memory limits are not enforced: {error.strerror}: {error.filename}"
        return ""

    def make(self, name: str, limit: int) -> Group | None:
        """A cgroup with this memory limit in bytes, or None where there can be none."""
        if self.problem:
            return None
        group = Group(self._parent / name)
        group.path.mkdir()
        if self._legacy:
            (group.path / "memory.limit_in_bytes").write_text(str(limit))
        else:
            (group.path / "memory.max").write_text(str(limit))
            (group.path / "memory.swap.max").write_text("0") if (
                group.path / "memory.swap.max"
            ).exists() else None
            (group.path / "memory.oom.group").write_text("1")
        return group

    def remove_all(self) -> None:
        if self._parent.is_dir():
            for child in [entry for entry in os.scandir(self._parent) if entry.is_dir()]:
                Group(Path(child.path)).remove()
            self._parent.rmdir()
