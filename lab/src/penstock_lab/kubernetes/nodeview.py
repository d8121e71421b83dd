"""Runs a kubelet that sees a machine with its node's CPUs and memory instead of the host's.

A kubelet reads its node's size from /proc and /sys. In its own mount namespace those files are replaced, so
four nodes of 8 CPUs fit on a laptop, and what a kubelet would write outside the lab (/var/log/containers,
kernel settings) stays inside. The kubelet's directory is shared with the host, since containerd must see the
volumes that the kubelet mounts.

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
"""Kernel settings a kubelet sets; it sees the desired values and so leaves the host's unchanged."""
NUMA_NODES = Path("/sys/devices/system/node")
CPUS = Path("/sys/devices/system/cpu")
MEMORY = Path("/proc/meminfo")
LOGS = Path("/var/log")
DEVICE_PLUGINS = Path("/var/lib/kubelet")
"""Where kubelets listen for device plugins: a fixed path, whatever their root directory."""


def prepare(view: Path, *, cpus: int, memory_mb: int) -> None:
    """Write the files that replace the machine's."""
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
    """Bind mounts: target → source."""
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
    """Replace the machine's files in a new mount namespace."""
    chosen = replacements(view)
    mountcalls.leave_mount_namespace()
    for mount in {mountcalls.mount_holding(target) for target in chosen}:
        mountcalls.keep_private(mount)
    for target, source in chosen.items():
        mountcalls.bind(source, target)


def main(arguments: list[str]) -> None:
    enter(Path(arguments[0]))
    os.execv(arguments[1], arguments[1:])  # noqa: S606 - replacing ourselves, no shell involved


if __name__ == "__main__":
    main(sys.argv[1:])
