"""Which nodes a script may ask for itself: taints that its pods bear, and labels that it names.

In mode check Slurm has chosen the nodes, and a script can only narrow that. In mode trust kube-scheduler
chooses, and a toleration or a host's name would reach any node of the cluster: there a script may have what
the site allows, and nothing else. An entry of the site's is a key, for any value, or key=value.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.model.jobspec import PodSpec
from penstock.model.podpolicy import PartitionPolicy

NOTHING = "none is allowed in this partition"


def refusals(pod: PodSpec, partition: PartitionPolicy) -> Iterator[tuple[str, str, str]]:
    """The field, what is wrong, and what is allowed, of each directive that asks for too much.

    Where the site does not say, all is allowed where Slurm chooses, and nothing where it does not.
    """
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
