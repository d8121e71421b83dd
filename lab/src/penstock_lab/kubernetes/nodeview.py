"""Becomes a kubelet that sees another machine: as many CPUs and as much memory as its node should have.

A real kubelet reads its node's size from /proc and /sys. In a mount namespace of its own those few files are
others, so that four nodes of 8 CPUs fit on a laptop, and what a kubelet would write outside the lab
(/var/log/containers, kernel settings) stays inside. Its own directory is shared with the host: the volumes
that it mounts must be seen by containerd.

usage: python -m penstock_lab.kubernetes.nodeview VIEW COMMAND [ARGUMENT …]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from penstock_lab import files
from penstock_lab.kubernetes import mountcalls

KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet wants of the kernel: it sees that already so and leaves the host's as they are."""
NUMA_NODES = Path("/sys/devices/system/node")
CPUS = Path("/sys/devices/system/cpu")
MEMORY = Path("/proc/meminfo")
LOGS = Path("/var/log")
DEVICE_PLUGINS = Path("/var/lib/kubelet")
"""Where a kubelet listens for device plugins, whatever its own directory is: one for all of a host."""


def prepare(view: Path, *, cpus: int, memory_mb: int) -> None:
    """Write the files that stand for the machine."""
    for folder in (view, *(view / name for name in ("node", "cpu", "log", "sys", "kubelet"))):
        files.directory(folder)
    for number in range(cpus):
        files.directory(view / "cpu" / f"cpu{number}")
    files.write(view / "meminfo", render_memory(memory_mb))
    for name, value in KERNEL_SETTINGS.items():
        files.write(view / "sys" / name.replace("/", "."), f"{value}\n")


def render_memory(megabytes: int) -> str:
    """/proc/meminfo of an idle machine of that size."""
    total = megabytes * 1024
    amounts = {"MemTotal": total, "MemFree": total, "MemAvailable": total, "SwapTotal": 0, "SwapFree": 0}
    return "".join(f"{name + ':':<16}{amount:>8} kB\n" for name, amount in amounts.items())


def replacements(view: Path) -> dict[Path, Path]:
    """What is seen where."""
    settings = {Path("/proc/sys") / name: view / "sys" / name.replace("/", ".") for name in KERNEL_SETTINGS}
    seen = {
        NUMA_NODES: view / "node",
        CPUS: view / "cpu",
        MEMORY: view / "meminfo",
        LOGS: view / "log",
        DEVICE_PLUGINS: view / "kubelet",
    }
    return {target: source for target, source in (seen | settings).items() if target.exists()}


def enter(view: Path) -> None:
    """See the machine that `view` describes."""
    chosen = replacements(view)
    mountcalls.leave_mount_namespace()
    for mount in {mountcalls.mount_holding(target) for target in chosen}:
        mountcalls.keep_private(mount)
    for target, source in chosen.items():
        mountcalls.bind(source, target)


def main(arguments: list[str]) -> None:
    """Enter the view and become the command; an error is its last word in the log."""
    enter(Path(arguments[0]))
    os.execv(arguments[1], arguments[1:])  # noqa: S606 - replacing ourselves, no shell involved


if __name__ == "__main__":
    main(sys.argv[1:])
