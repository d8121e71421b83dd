"""Schema of the parts that a site file has several of: node groups, partitions, GPU types, accounts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from penstock.site.scalars import (
    Address,
    Count,
    DnsName,
    GresType,
    Hosts,
    Image,
    KeyOrPair,
    LabelValue,
    Memory,
    Name,
    Port,
    Positive,
    Resource,
    Time,
    Word,
)

Mode = Literal["check", "trust", "host"]
Labels = Annotated[dict[str, LabelValue], Field(max_length=20)]


class Part(BaseModel):
    """A mapping without unknown keys, whose values are not coerced to another type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class GpuType(Part):
    """A type of GPU."""

    resource: Annotated[Resource, Field(description="Kubernetes' name of the resource.")] = "nvidia.com/gpu"
    labels: Annotated[Labels, Field(description="Labels of nodes with this GPU.")] = {}


class Reserved(Part):
    """The share of a node that Slurm does not get."""

    cpus: Annotated[Count, Field(description="CPUs for kubelet, DaemonSets and the system.")] = 0
    memory: Annotated[Memory, Field(description="Memory for the same.")] = "0Mi"


class VirtualSlurmd(Part):
    """The host of the slurmds of a group's nodes, one process per node."""

    host: Annotated[Address, Field(description="Host that runs the slurmds.")] = "localhost"
    address: Annotated[Address, Field(description="Its address.")] = "127.0.0.1"
    first_port: Annotated[Port, Field(description="Port of the first node; the others follow.")] = 17001


class NodeGroup(Part):
    """A group of equal nodes."""

    nodes: Annotated[Hosts | None, Field(description="Host list; names are the same on both sides.")] = None
    selector: Annotated[Labels | None, Field(description="Or labels of Kubernetes nodes.")] = None
    size: Annotated[
        Literal["given", "kubernetes"], Field(description="`given` here, or taken from the Kubernetes nodes.")
    ] = "given"
    cpus: Annotated[Positive | None, Field(description="CPUs of a node.")] = None
    memory: Annotated[Memory | None, Field(description="Memory of a node.")] = None
    gpus: Annotated[Count, Field(description="GPUs of a node.")] = 0
    gpu_type: Annotated[GresType | None, Field(description="GPU type, one of `gpus`.")] = None
    features: Annotated[tuple[Name, ...], Field(description="Slurm features, for --constraint.")] = ()
    reserved: Annotated[Reserved, Field(description="Share of a node that Slurm does not get.")] = Reserved()
    slurmd: Annotated[VirtualSlurmd | None, Field(description="For slurmds of all nodes on one host.")] = None


class Limits(Part):
    """Limits of one job in a partition."""

    max_nodes: Annotated[Positive | None, Field(description="MaxNodes.")] = None
    max_cpus_per_node: Annotated[Positive | None, Field(description="MaxCPUsPerNode.")] = None
    max_memory_per_node: Annotated[Memory | None, Field(description="MaxMemPerNode.")] = None


class Toleration(Part):
    """A toleration, as in a pod."""

    key: Annotated[Word, Field(description="The taint's key.")]
    operator: Annotated[Literal["Exists", "Equal"], Field(description="How the key is compared.")] = "Exists"
    value: Annotated[LabelValue | None, Field(description="Value, with operator Equal.")] = None
    effect: Annotated[
        Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None,
        Field(description="The taint's effect."),
    ] = None


class Partition(Part):
    """A partition of Slurm."""

    mode: Annotated[
        Mode,
        Field(
            description="`check`: jobs are pods and start when Kubernetes has room for them; "
            "`trust`: pods without that check; `host`: ordinary Slurm jobs, left alone."
        ),
    ] = "check"
    nodes: Annotated[tuple[Name, ...], Field(description="Node groups.", min_length=1)]
    default: Annotated[bool, Field(description="Partition of jobs that name none.")] = False
    max_time: Annotated[Time, Field(description="MaxTime.")] = "7-00:00:00"
    default_time: Annotated[Time, Field(description="DefaultTime.")] = "01:00:00"
    allow_groups: Annotated[tuple[Name, ...], Field(description="AllowGroups; empty: all.")] = ()
    allow_accounts: Annotated[tuple[Name, ...], Field(description="AllowAccounts; empty: all.")] = ()
    priority: Annotated[int | None, Field(ge=0, le=65533, description="PriorityJobFactor and -Tier.")] = None
    qos: Annotated[Name | None, Field(description="Partition QOS.")] = None
    preempt: Annotated[Literal["off", "requeue", "cancel"] | None, Field(description="PreemptMode.")] = None
    limits: Annotated[Limits, Field(description="Limits of one job.")] = Limits()
    image: Annotated[Image | None, Field(description="Image of scripts that name none.")] = None
    priority_class: Annotated[DnsName | None, Field(description="PriorityClass of its pods.")] = None
    network: Annotated[
        Literal["pod", "host"],
        Field(
            description="`pod`: pods have a network of their own; `host`: they share the node's, "
            "as NCCL over InfiniBand or EFA may need."
        ),
    ] = "pod"
    tolerations: Annotated[tuple[Toleration, ...], Field(description="Tolerations of its pods.")] = ()
    node_selector: Annotated[Labels, Field(description="nodeSelector of its pods.")] = {}
    allowed_tolerations: Annotated[
        tuple[KeyOrPair, ...] | None,
        Field(
            description="Taints, `key` or `key=value`, that scripts may tolerate with `#K8S_TOLERATION`. "
            "Default: all in mode check, none in mode trust."
        ),
    ] = None
    allowed_node_labels: Annotated[
        tuple[KeyOrPair, ...] | None,
        Field(
            description="Labels, `key` or `key=value`, that scripts may select with `#K8S_NODE_SELECTOR`. "
            "Default: all in mode check, none in mode trust."
        ),
    ] = None


class PriorityClass(Part):
    """A PriorityClass."""

    value: Annotated[int, Field(ge=-2147483648, le=1000000000, description="Higher is scheduled first.")]
    preempts: Annotated[bool, Field(description="Whether its pods may preempt others.")] = False


class Quota(Part):
    """Limits on the sum of all pods of a namespace."""

    cpus: Annotated[Positive | None, Field(description="CPUs.")] = None
    memory: Annotated[Memory | None, Field(description="Memory.")] = None
    gpus: Annotated[Count | None, Field(description="GPUs, for each resource name separately.")] = None
    pods: Annotated[Positive | None, Field(description="Pods.")] = None


class User(Part):
    """A user of an account."""

    quota: Annotated[Quota | None, Field(description="Quota of the user's namespace.")] = None
    gpu_hours: Annotated[Positive | None, Field(description="GrpTRESMins of gres/gpu, in hours.")] = None
    fairshare: Annotated[Positive | None, Field(description="Shares.")] = None


class Account(Part):
    """An account of Slurm."""

    quota: Annotated[Quota | None, Field(description="Quota of the account's namespace, if it has one.")] = (
        None
    )
    users: Annotated[dict[Name, User], Field(description="Its users.")] = {}
    fairshare: Annotated[Positive | None, Field(description="Shares.")] = None
    gpu_hours: Annotated[Positive | None, Field(description="GrpTRESMins of gres/gpu, in hours.")] = None
    cpu_hours: Annotated[Positive | None, Field(description="GrpTRESMins of cpu, in hours.")] = None
