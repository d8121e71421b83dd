"""CPU and memory of processes from the kernel's accounting, which other load affects little."""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

ACCOUNTING = Path("/sys/fs/cgroup/cpuacct")
_TICKS = os.sysconf("SC_CLK_TCK")


def pss_megabytes(pid: int) -> float:
    """The process's PSS: its private memory and its share of shared memory."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no Pss for process {pid}")


def cpu_seconds(pid: int) -> float:
    """User and system time of the process and its reaped children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / _TICKS


def with_argument(text: str) -> list[int]:
    """Processes with exactly this argument."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended while we looked
            if text.encode() in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return found


def cpu_milliseconds_of(argv: list[str], environment: dict[str, str], *, runs: int = 15) -> float:
    """CPU of a program's run; the median of several."""
    found = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(argv, env=environment, check=False, timeout=30)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
    return statistics.median(found)


class Meter:
    """CPU by component, including children, by cgroups with the cpuacct controller."""

    def __init__(self, pids: dict[str, list[int]]) -> None:
        self._root = ACCOUNTING / f"penstock-bench-{os.getpid()}"
        for name, members in pids.items():
            group = self._root / name
            group.mkdir(parents=True, exist_ok=True)
            for pid in members:
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    (group / "tasks").write_text(thread.name)

    def milliseconds(self) -> dict[str, float]:
        return {
            group.name: int((group / "cpuacct.usage").read_text()) / 1e6
            for group in self._root.iterdir()
            if group.is_dir()
        }

    def close(self) -> None:
        """Move the processes back and remove the cgroups."""
        for group in [*(path for path in self._root.iterdir() if path.is_dir()), self._root]:
            for thread in (group / "tasks").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    (ACCOUNTING / "tasks").write_text(thread)
            _remove(group)


@contextlib.contextmanager
def metered(pids: dict[str, list[int]]) -> Iterator[Meter | None]:
    """A Meter, or None where cgroups cannot count."""
    if not os.access(ACCOUNTING, os.W_OK) or not (ACCOUNTING / "cpuacct.usage").exists():
        yield None
        return
    meter = Meter(pids)
    try:
        yield meter
    finally:
        meter.close()


def _remove(group: Path) -> None:
    for _ in range(50):
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.1)
        else:
            return


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
