"""The names of a gang's pods: each is called like its Slurm node, and finds the others under theirs.

A pod's host name is a DNS label. A node's name that is none (it has a dot, an underscore, a capital) stays a
name in /etc/hosts, with its first label made valid beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

LONGEST = 63
_NO_LABEL = re.compile(r"[^a-z0-9-]")


def label_of(node: str) -> str:
    """The host name of a pod on this Slurm node."""
    first = node.partition(".")[0].lower()
    return _NO_LABEL.sub("-", first)[:LONGEST].strip("-")


def names_of(node: str) -> tuple[str, ...]:
    """All names of a pod on this node, the node's own first."""
    return (node, *{label_of(node)} - {node, ""})


def lines(nodes: Sequence[str], addresses: Sequence[str], *, without: int) -> str:
    """The lines of /etc/hosts for all pods but one, which has its own. A label of two nodes names neither."""
    uses = Counter(label_of(node) for node in nodes)
    found = []
    for rank, (node, address) in enumerate(zip(nodes, addresses, strict=True)):
        if rank != without:
            names = names_of(node) if uses[label_of(node)] == 1 else (node,)
            found.append(f"{address} {' '.join(names)}\n")
    return "".join(found)
