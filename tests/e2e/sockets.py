"""The listening sockets of a lab's processes, from /proc."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from penstock_lab import paths, processes, teardown

_LISTENING = "0A"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def listening(place: paths.LabPaths) -> dict[tuple[str, int], set[Address]]:
    """Listening addresses of the lab's processes, by name and pid."""
    found: dict[tuple[str, int], set[Address]] = {}
    for process in teardown.belonging(place, processes.snapshot(), created_uid=None):
        held = set(processes.open_targets(process.pid))
        addresses = {address for inode, address in _listeners(process.pid) if f"socket:[{inode}]" in held}
        if addresses:
            found[process.name, process.pid] = addresses
    return found


def reachable_from_outside(place: paths.LabPaths) -> dict[tuple[str, int], set[Address]]:
    """Those that are not on loopback."""
    return {
        who: addresses
        for who, addresses in listening(place).items()
        if not all(_is_loopback(address) for address in addresses)
    }


def _listeners(pid: int) -> Iterator[tuple[str, Address]]:
    """Every listening socket in the process's network namespace."""
    for table in ("tcp", "tcp6"):
        for line in _lines(pid, table):
            fields = line.split()
            if fields[3] == _LISTENING:
                yield fields[9], _address(fields[1].partition(":")[0])


def _lines(pid: int, table: str) -> list[str]:
    try:
        return (processes.PROC / str(pid) / "net" / table).read_text().splitlines()[1:]
    except OSError:  # it has ended, or the kernel has no IPv6
        return []


def _address(text: str) -> Address:
    """The kernel prints words of four bytes in host byte order."""
    raw = bytes.fromhex(text)
    return ipaddress.ip_address(b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4)))


def _is_loopback(address: Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
