"""What a site decides about pods, for all of them and by partition.

A site file is resolved to this. penstockd.json and the view of the site carry it under `pods`, so that
penstockd, `explain`, `mkyaml`, `mkinst` and `validate` go by the same words.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock import wellknown

NAMESPACE_QUOTA = {"pods": "2000", "secrets": "4000"}
"""No user needs more at once, and no mistake of a user's fills the API server."""


SCHEDULERS = {"check": wellknown.SCHEDULER_NAME, "trust": ""}
"""By mode, the schedulerName of pods; empty: whatever the cluster's default is."""


class PartitionPolicy(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Pods of one partition. A key of a partition in the site file that has the same name is taken over."""

    mode: Literal["check", "trust"] = "check"
    """Who places the pods: bridge/placement.py."""
    image: str = ""
    """Of scripts that name none; empty: the site's."""
    priority_class: str = ""
    tolerations: tuple[dict[str, str], ...] = ()
    node_selector: dict[str, str] = {}
    allowed_tolerations: tuple[str, ...] | None = None
    """What scripts may bear themselves; None: all or, in mode trust, nothing."""
    allowed_node_labels: tuple[str, ...] | None = None
    """The same of labels that scripts may name."""

    @property
    def scheduler(self) -> str:
        return SCHEDULERS[self.mode]


class PodPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """All pods of a site."""

    cluster: str = ""
    """The Slurm cluster's name, which tells our pods from those of another Slurm on the same Kubernetes."""
    default_image: str = ""
    allowed_images: tuple[str, ...] = ()
    """Prefixes of images that jobs may use; none allows all."""
    forbidden_directives: tuple[str, ...] = ()
    """#K8S_ directives that scripts may not have, by their name without the prefix."""
    image_pull_policy: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    shared_mounts: tuple[str, ...] = ()
    """Folders that pods see under the same path."""
    mount_sources: dict[str, dict[str, Any]] = {}
    """Volume sources of shared mounts that are no folders of the node, by their path."""
    namespace_pattern: str = "user-{user}"
    reserved_namespaces: tuple[str, ...] = ()
    """Namespaces of the site's own, where no job's pod may be."""
    namespace_quota: dict[str, str] = msgspec.field(default_factory=lambda: dict(NAMESPACE_QUOTA))
    """What a namespace of jobs may hold at most, as a ResourceQuota says it; none when empty."""
    pod_security: str = ""
    """The Pod Security level of namespaces of jobs; empty: the cluster's default."""
    isolate_namespaces: bool = True
    """Whether pods take connections from pods of the same namespace only."""
    kill_wait: int = 30
    gpu_labels: dict[str, dict[str, str]] = {}
    """Labels that a node with GPUs of a Slurm GRES type carries."""
    gpu_resources: dict[str, str] = {}
    """Kubernetes' resource names of GRES types whose GPUs are no nvidia.com/gpu."""
    qos_priority_classes: dict[str, str] = {}
    """PriorityClass by QOS, which outweighs that of the partition."""
    partitions: dict[str, PartitionPolicy] = {}
    """All partitions whose jobs are pods."""

    def partition(self, name: str) -> PartitionPolicy:
        """What holds there; in a partition that the site does not name, nothing special."""
        return self.partitions.get(name) or PartitionPolicy()

    def image_in(self, partition: str) -> str:
        """The image of jobs there that name none."""
        return self.partition(partition).image or self.default_image

    def priority_class(self, *, partition: str, qos: str) -> str:
        return self.qos_priority_classes.get(qos) or self.partition(partition).priority_class

    def gpu_resource(self, gpu_type: str) -> str:
        """What a pod with GPUs of that type asks for."""
        return self.gpu_resources.get(gpu_type, wellknown.GPU_RESOURCE)
