"""Which tolerations and node labels a script may use.

In mode check Slurm chooses the nodes, and a script can only narrow that. In mode trust kube-scheduler
chooses, and a toleration or a host name would reach any node of the cluster: a script may use only what the
site allows. An entry of the site is a key, for any value, or key=value.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.model.jobspec import PodSpec
from penstock.model.podpolicy import PartitionPolicy

NOTHING = "none is allowed in this partition"


def refusals(pod: PodSpec, partition: PartitionPolicy) -> Iterator[tuple[str, str, str]]:
    """Field, message and hint for each directive that is not allowed."""
    tolerations = [
        f"{one.key}={one.value}" if one.operator == "Equal" else one.key for one in pod.tolerations
    ]
    labels = [f"{key}={value}" for key, value in pod.node_selector.items()]
    for field, directive, asked, allowed in (
        ("pod.tolerations", "#K8S_TOLERATION", tolerations, partition.allowed_tolerations),
        ("pod.node_selector", "#K8S_NODE_SELECTOR", labels, partition.allowed_node_labels),
    ):
        if allowed is None and partition.mode == "check":
            continue
        hint = f"allowed in this partition: {', '.join(allowed)}" if allowed else NOTHING
        for word in asked:
            if not {word, word.partition("=")[0]} & set(allowed or ()):
                yield field, f"{directive}={word} is not allowed here", hint
