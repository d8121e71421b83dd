"""Pods made from a JobSpec or a command line instead of an allocation: for `explain`, `mkyaml` and
`mkinst`.

They use the functions that make the jobs' pods, so labels, namespace and security cannot diverge.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from penstock import wellknown
from penstock.model import jobs, launches, resources
from penstock.model.jobspec import PodSpec
from penstock.model.podpolicy import PodPolicy
from penstock.render import namespaces, pods

Manifest = dict[str, Any]
MIB = 1024 * 1024
JOBS_OWN = ("penstock", "run", "home")  # volumes that are only for batch scripts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instance:
    """The owner and size of pods to make, one per rank."""

    owner: launches.Owner
    job_id: int
    cpus: int
    memory_mib: int
    gpus: Mapping[str, int]  # by Slurm's type; "" for an unknown type
    gpu_resource: str  # the resource for GPUs of unknown type
    ranks: int = 1
    partition: str = ""
    qos: str = ""

    def allocation(self, policy: PodPolicy) -> jobs.Allocation:
        """As slurmctld would report it; nodes are named by rank."""
        amount = resources.Amount(
            millicpus=self.cpus * 1000, memory=self.memory_mib * MIB, gpus=sum(self.gpus.values())
        )
        share = jobs.NodeShare(node="", amount=amount, gpus_by_type=resources.devices(self.gpus.items()))
        known = share.in_kubernetes({"": self.gpu_resource, **policy.gpu_resources})
        return jobs.Allocation(
            identity=jobs.JobIdentity(job_id=self.job_id, restart=0, uid=self.owner.uid),
            shares=tuple(dataclasses.replace(known, node=f"node-{rank}") for rank in range(self.ranks)),
            partition=self.partition,
            qos=self.qos,
        )


def job_pods(instance: Instance, request: launches.LaunchRequest, policy: PodPolicy) -> list[Manifest]:
    """The pods that penstockd would make for a script."""
    allocation = instance.allocation(policy)
    return [
        pods.render_pod(allocation, rank, owner=instance.owner, request=request, policy=policy)
        for rank in range(instance.ranks)
    ]


def single(
    instance: Instance, wish: PodSpec, *, policy: PodPolicy, command: Sequence[str] = ()
) -> list[Manifest]:
    """A namespace as for bridged jobs, and one pod with the image's own command, placed by kube-scheduler."""
    request = launches.LaunchRequest(
        interpreter=b"", script=b"", workdir=b"/", stdout=b"/dev/null", stderr=b"/dev/null", pod=wish
    )
    (pod,) = job_pods(instance, request, policy)
    spec = pod["spec"]
    for key in ("schedulerName", "hostname"):
        spec.pop(key, None)
    container = spec["containers"][0]
    container.pop("command", None)
    container["volumeMounts"] = [m for m in container["volumeMounts"] if m["name"] not in JOBS_OWN]
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] not in JOBS_OWN]
    pod["metadata"]["name"] = f"inst-{instance.job_id}"
    # Not a job's pod: with the jobs' label it would be deleted as an orphan.
    pod["metadata"]["labels"][wellknown.LABEL_APP] = wellknown.INSTANCE_VALUE
    del pod["metadata"]["labels"][wellknown.LABEL_PLAIN_JOB_ID]
    if command:
        container["command"] = list(command)
    name = pod["metadata"]["namespace"]
    around = [namespaces.render_namespace(instance.owner, policy)]
    if policy.isolate_namespaces:
        around.append(_in(name, namespaces.render_network_policy()))
    if policy.namespace_quota:
        around.append(_in(name, namespaces.render_quota(policy.namespace_quota)))
    return [*around, pod]


def _in(namespace: str, manifest: Manifest) -> Manifest:
    return manifest | {"metadata": manifest["metadata"] | {"namespace": namespace}}
