"""Which nodes a script may ask for itself: taints that its pods bear, and labels that it names.

In mode check Slurm has chosen the nodes, and a script can only narrow that. In mode trust kube-scheduler
chooses, and a toleration or a host's name would reach any node of the cluster: there a script may have what
the site allows, and nothing else. An entry of the site's is a key, for any value, or key=value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.model.jobspec import PodSpec
from penstock.model.podpolicy import PartitionPolicy

ALLOWED = "allowed in this partition: {}"
NOTHING = "none is allowed in this partition"


def refusals(pod: PodSpec, partition: PartitionPolicy) -> Iterator[tuple[str, str, str]]:
    """The field, what is wrong, and what is allowed, of each directive that asks for too much.

    None is a site that does not say: then all is allowed where Slurm chooses, and nothing where it does not.
    """
    unsaid = () if partition.mode == "trust" else None
    bearable = partition.allowed_tolerations if partition.allowed_tolerations is not None else unsaid
    for one in pod.tolerations:
        exactly = f"{one.key}={one.value}" if one.operator == "Equal" else one.key
        if bearable is not None and not {one.key, exactly} & set(bearable):
            yield "pod.tolerations", f"#K8S_TOLERATION={exactly} is not allowed here", _hint(bearable)
    nameable = partition.allowed_node_labels if partition.allowed_node_labels is not None else unsaid
    for key, value in pod.node_selector.items():
        if nameable is not None and not {key, f"{key}={value}"} & set(nameable):
            yield (
                "pod.node_selector",
                f"#K8S_NODE_SELECTOR={key}={value} is not allowed here",
                _hint(nameable),
            )


def _hint(allowed: Collection[str]) -> str:
    return ALLOWED.format(", ".join(allowed)) if allowed else NOTHING
