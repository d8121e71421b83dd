"""What a site decides about pods, for all of them and by partition.

A site file is resolved to this. penstockd.json and the site view contain it under `pods`, so penstockd,
`explain`, `mkyaml`, `mkinst` and `validate` use the same settings.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock import wellknown
from penstock.model import podcommands

NAMESPACE_QUOTA = {"pods": "2000", "secrets": "4000"}
"""More than any user needs at once, and small enough to protect the API server from mistakes."""
SCHEDULERS = {"check": wellknown.SCHEDULER_NAME, "trust": ""}
"""schedulerName of pods by mode; empty for the cluster's default."""


class PartitionPolicy(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Pods of one partition. Keys of a partition in the site file with the same names are copied."""

    mode: Literal["check", "trust"] = "check"  # who places the pods: bridge/placement.py
    image: str = ""  # for scripts that name none; empty: the site's default
    priority_class: str = ""
    network: Literal["pod", "host"] = "pod"  # host: pods share the node's network
    tolerations: tuple[dict[str, str], ...] = ()
    node_selector: dict[str, str] = {}
    allowed_tolerations: tuple[str, ...] | None = None
    """What scripts may tolerate; None: everything or, in mode trust, nothing."""
    allowed_node_labels: tuple[str, ...] | None = None  # the same for node labels

    @property
    def scheduler(self) -> str:
        return SCHEDULERS[self.mode]


class PodPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """All pods of a site."""

    cluster: str = ""  # ClusterName; distinguishes pods of several Slurms on one Kubernetes
    default_image: str = ""
    allowed_images: tuple[str, ...] = ()  # allowed image prefixes; empty allows all
    forbidden_directives: tuple[str, ...] = ()
    """#K8S_ directives that scripts may not use, without the prefix."""
    image_pull_policy: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    shared_mounts: tuple[str, ...] = ()  # folders mounted in pods under the same path
    mount_sources: dict[str, dict[str, Any]] = {}
    """Volume sources of shared mounts that are not folders of the node, by path."""
    namespace_pattern: str = "user-{user}"
    reserved_namespaces: tuple[str, ...] = ()  # the site's own namespaces, where no job's pod may be
    namespace_quota: dict[str, str] = msgspec.field(default_factory=lambda: dict(NAMESPACE_QUOTA))
    """The ResourceQuota of a namespace of jobs; none if empty."""
    pod_security: str = ""  # Pod Security level of namespaces of jobs; empty: the cluster's default
    isolate_namespaces: bool = True  # whether pods accept connections only from their namespace
    kill_wait: int = 30
    pod_commands: tuple[str, ...] = podcommands.OFFERED
    """Slurm's commands that jobs may call in their pods."""
    gpu_labels: dict[str, dict[str, str]] = {}  # labels of nodes by GRES type of their GPUs
    gpu_resources: dict[str, str] = {}  # resource names of GRES types whose GPUs are not nvidia.com/gpu
    qos_priority_classes: dict[str, str] = {}  # PriorityClass by QOS, which overrides that of the partition
    partitions: dict[str, PartitionPolicy] = {}  # all bridged partitions

    def partition(self, name: str) -> PartitionPolicy:
        """The partition's policy; the defaults for one that the site does not name."""
        return self.partitions.get(name) or PartitionPolicy()

    def image_in(self, partition: str) -> str:
        """The default image of jobs in the partition."""
        return self.partition(partition).image or self.default_image

    def priority_class(self, *, partition: str, qos: str) -> str:
        return self.qos_priority_classes.get(qos) or self.partition(partition).priority_class

    def gpu_resource(self, gpu_type: str) -> str:
        """The resource name of GPUs of that type."""
        return self.gpu_resources.get(gpu_type, wellknown.GPU_RESOURCE)
