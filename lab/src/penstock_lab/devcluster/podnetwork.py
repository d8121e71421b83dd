"""A pod's address, host name and /etc/hosts, as a kubelet and its network plugin give them.

Containers share the machine's network, so each pod has a loopback address of its own: pods can bind and
connect by name. What binds to all addresses still collides.
"""

from __future__ import annotations

import hashlib
import itertools
import socket
from pathlib import Path
from typing import Final

from penstock_lab.devcluster.statuses import Json

NODE_ADDRESS: Final = "127.0.0.1"
HOSTS: Final = "/etc/hosts"
_FIRST_BLOCK, _BLOCKS = 64, 128
_HOSTS_TEXT: Final = """\
# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""


class Addresses:
    """127.x.y.z: x is the cluster's, so that clusters on one machine rarely share an address."""

    def __init__(self, data_dir: Path) -> None:
        digest = hashlib.sha256(str(data_dir.resolve()).encode()).digest()
        self._block = _FIRST_BLOCK + digest[0] % _BLOCKS
        self._hosts = itertools.cycle(itertools.product(range(256), range(1, 255)))

    def of(self, pod: Json) -> str:
        """A new address, or the node's if the pod shares its network."""
        if _shares_network(pod):
            return NODE_ADDRESS
        third, fourth = next(self._hosts)
        return f"127.{self._block}.{third}.{fourth}"


def _shares_network(pod: Json) -> bool:
    return bool(pod["spec"].get("hostNetwork"))


def status(address: str) -> Json:
    """The addresses in a pod's status; it has none of its own before it has a sandbox."""
    node = {"hostIP": NODE_ADDRESS, "hostIPs": [{"ip": NODE_ADDRESS}]}
    return node | ({"podIP": address, "podIPs": [{"ip": address}]} if address else {})


def hostname(pod: Json) -> str:
    if _shares_network(pod):
        return socket.gethostname()
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"][:63])


def hosts_file(pod: Json, address: str, directory: Path, targets: set[str]) -> list[tuple[str, str, bool]]:
    """The mount of the pod's own /etc/hosts, written anew; none if it is the node's or mounted over."""
    if _shares_network(pod) or HOSTS in targets:
        return []
    aliases = [(one["ip"], one.get("hostnames") or ()) for one in pod["spec"].get("hostAliases") or ()]
    lines = [f"{ip}\t" + "\t".join(names) for ip, names in ((address, [hostname(pod)]), *aliases)]
    path = directory / "etc-hosts"
    path.write_text(_HOSTS_TEXT + "".join(f"{line}\n" for line in lines))
    path.chmod(0o644)
    return [(str(path), HOSTS, False)]
