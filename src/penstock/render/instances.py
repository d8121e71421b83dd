"""Pods made from a JobSpec or from a command line instead of an allocation: for `explain`, `mkyaml` and
`mkinst`.

They go through the same functions as the bridge's own pods, so labels, namespace and security cannot
drift apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from penstock import wellknown
from penstock.model import homes, jobs, launches, resources
from penstock.model.jobspec import PodSpec
from penstock.model.podpolicy import PodPolicy
from penstock.render import namespaces, pods

Manifest = dict[str, Any]
MIB = 1024 * 1024
JOBS_OWN = ("penstock", "home")  # volumes that only what runs a batch script makes use of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instance:
    """One pod to make: whose, how large, and what the directives ask for."""

    owner: launches.Owner
    job_id: int
    cpus: int
    memory_mib: int
    gpus: int
    wish: PodSpec
    gpu_resource: str = wellknown.GPU_RESOURCE
    gpu_type: str = ""
    partition: str = ""
    qos: str = ""


def job_pods(instance: Instance, *, ranks: int, script: bytes, policy: PodPolicy) -> list[Manifest]:
    """What the bridge would make of a script on that many nodes; nodes are named by rank only."""
    allocation = _allocation(instance, ranks)
    request = launches.LaunchRequest(
        interpreter=b"",
        script=script,
        arguments=(),
        environment=(),
        workdir=b"/",
        stdout=b"/dev/null",
        stderr=b"/dev/null",
        pod=instance.wish,
    )
    return [
        pods.render_pod(allocation, rank, owner=instance.owner, request=request, policy=policy)
        for rank in range(ranks)
    ]


def single(instance: Instance, *, policy: PodPolicy, command: Sequence[str] = ()) -> list[Manifest]:
    """A namespace as bridged jobs have it, and one pod that runs the image's own command, placed by
    kube-scheduler.
    """
    pod = job_pods(instance, ranks=1, script=b"", policy=policy)[0]
    spec = pod["spec"]
    spec.pop("schedulerName", None)
    container = spec["containers"][0]
    container.pop("command", None)
    container["volumeMounts"] = [m for m in container["volumeMounts"] if m["name"] not in JOBS_OWN]
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] not in JOBS_OWN]
    pod["metadata"]["name"] = f"inst-{instance.job_id}"
    # Nobody's job: what has no live job in Slurm under the jobs' own label would be swept away as an orphan.
    pod["metadata"]["labels"][wellknown.LABEL_APP] = wellknown.INSTANCE_VALUE
    del pod["metadata"]["labels"][wellknown.LABEL_PLAIN_JOB_ID]
    if command:
        container["command"] = list(command)
    name = pod["metadata"]["namespace"]
    shared = homes.is_shared(policy.namespace_pattern)
    around = [namespaces.render_namespace(name, instance.owner, shared=shared)]
    if policy.isolate_namespaces:
        around.append(_in(name, namespaces.render_network_policy()))
    if policy.namespace_quota:
        around.append(_in(name, namespaces.render_quota(policy.namespace_quota)))
    return [*around, pod]


def _in(namespace: str, manifest: Manifest) -> Manifest:
    return manifest | {"metadata": manifest["metadata"] | {"namespace": namespace}}


def _allocation(instance: Instance, ranks: int) -> jobs.Allocation:
    usual = instance.gpu_resource == wellknown.GPU_RESOURCE
    amount = resources.Amount(
        millicpus=instance.cpus * 1000,
        memory=instance.memory_mib * MIB,
        gpus=instance.gpus if usual else 0,
        devices=() if usual else resources.devices([(instance.gpu_resource, instance.gpus)]),
    )
    identity = jobs.JobIdentity(job_id=instance.job_id, restart=0, uid=instance.owner.uid)
    typed = resources.devices([(instance.gpu_type, instance.gpus)] if instance.gpu_type else ())
    shares = tuple(
        jobs.NodeShare(node=f"node-{rank}", amount=amount, gpus_by_type=typed) for rank in range(ranks)
    )
    return jobs.Allocation(identity=identity, shares=shares, partition=instance.partition, qos=instance.qos)
