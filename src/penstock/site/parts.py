"""The parts of a site file that come in numbers: node groups, partitions, GPU types, accounts."""

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
    """A mapping whose keys are all known, and whose values are never guessed into another kind."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class GpuType(Part):
    """One type of GPU on both sides."""

    resource: Annotated[Resource, Field(description="Kubernetes' name for it.")] = "nvidia.com/gpu"
    labels: Annotated[Labels, Field(description="Labels that nodes with it carry.")] = {}


class Reserved(Part):
    """What Slurm does not get of a node."""

    cpus: Annotated[Count, Field(description="CPUs for kubelet, DaemonSets and the system.")] = 0
    memory: Annotated[Memory, Field(description="Memory for them.")] = "0Mi"


class VirtualSlurmd(Part):
    """Where the slurmds of a group's nodes run: one process a node, on one host."""

    host: Annotated[Address, Field(description="Host that runs them.")] = "localhost"
    address: Annotated[Address, Field(description="Its address.")] = "127.0.0.1"
    first_port: Annotated[Port, Field(description="Port of the first node; the others follow.")] = 17001


class NodeGroup(Part):
    """Nodes that are alike."""

    nodes: Annotated[
        Hosts | None, Field(description="Host list; a node has the same name on both sides.")
    ] = None
    selector: Annotated[Labels | None, Field(description="Or labels of the Kubernetes nodes.")] = None
    size: Annotated[
        Literal["given", "kubernetes"],
        Field(description="`given` here, or what Kubernetes says that the nodes have."),
    ] = "given"
    cpus: Annotated[Positive | None, Field(description="CPUs of a node.")] = None
    memory: Annotated[Memory | None, Field(description="Memory of a node.")] = None
    gpus: Annotated[Count, Field(description="GPUs of a node.")] = 0
    gpu_type: Annotated[GresType | None, Field(description="Their type, one of `gpus`.")] = None
    features: Annotated[tuple[Name, ...], Field(description="Slurm features, for --constraint.")] = ()
    reserved: Annotated[Reserved, Field(description="What Slurm does not get of a node.")] = Reserved()
    slurmd: Annotated[
        VirtualSlurmd | None,
        Field(description="The nodes' slurmds run on one host; without it each node runs its own."),
    ] = None


class Limits(Part):
    """What one job may take of a partition."""

    max_nodes: Annotated[Positive | None, Field(description="MaxNodes.")] = None
    max_cpus_per_node: Annotated[Positive | None, Field(description="MaxCPUsPerNode.")] = None
    max_memory_per_node: Annotated[Memory | None, Field(description="MaxMemPerNode.")] = None


class Toleration(Part):
    """As in a pod."""

    key: Annotated[Word, Field(description="The taint's key.")]
    operator: Annotated[Literal["Exists", "Equal"], Field(description="How it is compared.")] = "Exists"
    value: Annotated[LabelValue | None, Field(description="With Equal.")] = None
    effect: Annotated[
        Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None, Field(description="Which effect.")
    ] = None


class Partition(Part):
    """One queue."""

    mode: Annotated[
        Mode,
        Field(
            description="`check`: jobs are pods and start when Kubernetes has the room; "
            "`trust`: pods, unchecked; `host`: ordinary Slurm jobs, left alone."
        ),
    ] = "check"
    nodes: Annotated[tuple[Name, ...], Field(description="Node groups.", min_length=1)]
    default: Annotated[bool, Field(description="Jobs that name no partition come here.")] = False
    max_time: Annotated[Time, Field(description="MaxTime.")] = "7-00:00:00"
    default_time: Annotated[Time, Field(description="DefaultTime.")] = "01:00:00"
    allow_groups: Annotated[tuple[Name, ...], Field(description="AllowGroups; none lets everybody in.")] = ()
    allow_accounts: Annotated[tuple[Name, ...], Field(description="AllowAccounts; none lets all in.")] = ()
    priority: Annotated[int | None, Field(ge=0, le=65533, description="PriorityJobFactor and -Tier.")] = None
    qos: Annotated[Name | None, Field(description="QOS whose limits hold in the partition.")] = None
    preempt: Annotated[
        Literal["off", "requeue", "cancel"] | None, Field(description="PreemptMode of its jobs.")
    ] = None
    limits: Annotated[Limits, Field(description="What one job may take.")] = Limits()
    image: Annotated[Image | None, Field(description="Image of scripts that name none.")] = None
    priority_class: Annotated[DnsName | None, Field(description="PriorityClass of its pods.")] = None
    tolerations: Annotated[tuple[Toleration, ...], Field(description="Taints that its pods bear.")] = ()
    node_selector: Annotated[Labels, Field(description="Labels that its pods' nodes must carry.")] = {}
    allowed_tolerations: Annotated[
        tuple[KeyOrPair, ...] | None,
        Field(
            description="Taints, `key` or `key=value`, that scripts may bear with `#K8S_TOLERATION`. "
            "Not given: all in mode check, none in mode trust."
        ),
    ] = None
    allowed_node_labels: Annotated[
        tuple[KeyOrPair, ...] | None,
        Field(
            description="Labels, `key` or `key=value`, that scripts may name with `#K8S_NODE_SELECTOR`. "
            "Not given: all in mode check, none in mode trust."
        ),
    ] = None


class PriorityClass(Part):
    """A PriorityClass."""

    value: Annotated[int, Field(ge=-2147483648, le=1000000000, description="Higher goes first.")]
    preempts: Annotated[bool, Field(description="Whether its pods may push others out.")] = False


class Quota(Part):
    """What all pods of a namespace may ask for together."""

    cpus: Annotated[Positive | None, Field(description="CPUs.")] = None
    memory: Annotated[Memory | None, Field(description="Memory.")] = None
    gpus: Annotated[Count | None, Field(description="GPUs, of each resource name by itself.")] = None
    pods: Annotated[Positive | None, Field(description="Pods.")] = None


class User(Part):
    """One user of an account."""

    quota: Annotated[Quota | None, Field(description="Quota of the user's namespace.")] = None
    gpu_hours: Annotated[Positive | None, Field(description="GrpTRESMins of gres/gpu, in hours.")] = None
    fairshare: Annotated[Positive | None, Field(description="Shares.")] = None


class Account(Part):
    """One account."""

    quota: Annotated[
        Quota | None, Field(description="Quota of the account's namespace, where namespaces go by account.")
    ] = None
    users: Annotated[dict[Name, User], Field(description="Its users.")] = {}
    fairshare: Annotated[Positive | None, Field(description="Shares.")] = None
    gpu_hours: Annotated[Positive | None, Field(description="GrpTRESMins of gres/gpu, in hours.")] = None
    cpu_hours: Annotated[Positive | None, Field(description="GrpTRESMins of cpu, in hours.")] = None
