"""A job's attempt as pods, one per node of its allocation.

All pods are made by `render_pod`: the same policy, allocation and request give the same manifest. Pods are
created unbound, with a schedulerName that nobody serves, and bound later, so that a gang whose last pod is
refused has never run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from penstock import wellknown
from penstock.model import jobs, launches, namespacepattern
from penstock.model.podpolicy import PodPolicy
from penstock.render import directives, hostnames, initcontainers, podenv, workdirs

Manifest = dict[str, Any]
_NO_LABEL = re.compile(r"[^A-Za-z0-9_.-]")


def render_pod(
    allocation: jobs.Allocation,
    rank: int,
    *,
    owner: launches.Owner,
    request: launches.LaunchRequest,
    policy: PodPolicy,
    strict_groups: bool = False,
) -> Manifest:
    """One rank's unbound pod. `strict_groups` if the node's runtime supports supplementalGroupsPolicy."""
    identity, home = allocation.identity, workdirs.home_of(owner, request.pod, policy.shared_mounts)
    volumes = list(_volumes(identity, rank, request, policy, home))
    container = _container(allocation, rank, request, policy, home)
    container["volumeMounts"] = [{"name": volume["name"], **mount} for volume, mount in volumes]
    manifest: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(identity, rank),
            "namespace": namespacepattern.namespace_of(owner, policy),
            "labels": labels_of(identity, policy.cluster)
            | {wellknown.LABEL_RANK: str(rank)}
            | _labels_of_task(allocation),
        },
        "spec": _site_choices(allocation, rank, policy)
        | _network(allocation, rank, policy)
        | {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": policy.kill_wait,
            "securityContext": _pod_security(owner, strict_groups=strict_groups),
            "containers": [container],
            "volumes": [volume for volume, _ in volumes],
        },
    }
    initcontainers.add(manifest, allocation, rank, asked=request.pod, policy=policy)
    return directives.apply(manifest, request.pod, shared_mounts=policy.shared_mounts)


def _network(allocation: jobs.Allocation, rank: int, policy: PodPolicy) -> Manifest:
    """The pod is called like its Slurm node; with the node's network it has the node's own names."""
    if policy.partition(allocation.partition).network == "host":
        return {"hostNetwork": True, "dnsPolicy": "Default"}
    label = hostnames.label_of(allocation.shares[rank].node)
    return {"hostname": label} if label else {}


def _site_choices(allocation: jobs.Allocation, rank: int, policy: PodPolicy) -> Manifest:
    """Scheduler, priority, pull secrets, tolerations, and the labels that its node must have."""
    chosen: Manifest = {}
    if scheduler := policy.partition(allocation.partition).scheduler:
        chosen["schedulerName"] = scheduler
    if priority := policy.priority_class(partition=allocation.partition, qos=allocation.qos):
        chosen["priorityClassName"] = priority
    if policy.image_pull_secrets:
        chosen["imagePullSecrets"] = [{"name": name} for name in policy.image_pull_secrets]
    partition = policy.partition(allocation.partition)
    if partition.tolerations:
        chosen["tolerations"] = list(partition.tolerations)
    labels = dict(partition.node_selector)
    for gpu_type in allocation.shares[rank].gpu_types:
        labels |= policy.gpu_labels.get(gpu_type, {})
    if labels:
        chosen["nodeSelector"] = labels
    return chosen


def _pod_security(owner: launches.Owner, *, strict_groups: bool) -> Manifest:
    return {
        **({"supplementalGroupsPolicy": "Strict"} if strict_groups else {}),
        "runAsUser": owner.uid,
        "runAsGroup": owner.gid,
        "runAsNonRoot": owner.uid != 0,
        "supplementalGroups": sorted(set(owner.groups) - {owner.gid}),
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _container(
    allocation: jobs.Allocation,
    rank: int,
    request: launches.LaunchRequest,
    policy: PodPolicy,
    home: workdirs.Home,
) -> Manifest:
    share = allocation.shares[rank].amount
    amounts = {"cpu": f"{share.millicpus}m", "memory": str(share.memory)}
    gpus = ((wellknown.GPU_RESOURCE, share.gpus), *share.devices)
    amounts |= {name: str(count) for name, count in gpus if count}
    return {
        "name": wellknown.CONTAINER_NAME,
        "image": image_of(request, policy, allocation.partition),
        **({"imagePullPolicy": policy.image_pull_policy} if policy.image_pull_policy else {}),
        **_process(rank, request, home),
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _process(rank: int, request: launches.LaunchRequest, home: workdirs.Home) -> Manifest:
    """The agent, or with #K8S_COMMAND=@entrypoint the image's own entrypoint."""
    agent = ["/bin/sh", f"{wellknown.AGENT_MOUNT}/agent.sh"]
    if rank > 0:
        return {"command": [*agent, "hold"]}
    if not request.pod.own_entrypoint:
        return {"command": agent}
    pairs = [
        (name.decode(errors="replace"), value.decode(errors="replace"))
        for name, value in podenv.variables(request, home)
    ]
    found: Manifest = {"env": [{"name": name, "value": directives.literally(value)} for name, value in pairs]}
    if request.arguments:
        found["args"] = [directives.literally(word.decode(errors="replace")) for word in request.arguments]
    workdir = request.pod.workdir
    return found | ({"workingDir": workdir} if workdir else {})


def _volumes(
    identity: jobs.JobIdentity,
    rank: int,
    request: launches.LaunchRequest,
    policy: PodPolicy,
    home: workdirs.Home,
) -> Iterator[tuple[Manifest, Manifest]]:
    """Volumes with their mounts. Rank 0 may have its own home, and a volume for output to be fetched."""
    secret = {"secretName": secret_name(identity), "defaultMode": 0o555}
    yield {"name": "penstock", "secret": secret}, {"mountPath": wellknown.AGENT_MOUNT, "readOnly": True}
    yield {"name": initcontainers.RUN, "emptyDir": {}}, {"mountPath": wellknown.RUN_MOUNT}
    for number, path in enumerate(policy.shared_mounts):
        yield {"name": f"shared-{number}", **volume_source(path, policy)}, {"mountPath": path}
    if rank == 0 and home.made:
        yield {"name": "home", "emptyDir": {}}, {"mountPath": home.path}
    if rank == 0 and fetched(request, policy):
        yield {"name": "output", "emptyDir": {}}, {"mountPath": wellknown.OUTPUT_MOUNT}


def volume_source(path: str, policy: PodPolicy) -> Manifest:
    """How pods mount a shared folder."""
    return policy.mount_sources.get(path) or {"hostPath": {"path": path, "type": "Directory"}}


def pod_name(identity: jobs.JobIdentity, rank: int) -> str:
    """Unique per attempt and rank, so creating a pod twice is a conflict, not a second pod.

    Short, because people type it: slurm-job-17, slurm-job-17-r1, slurm-job-17-r1-n1.
    """
    return secret_name(identity) + (f"-n{rank}" if rank else "")


def secret_name(identity: jobs.JobIdentity) -> str:
    return f"slurm-job-{identity.job_id}" + (f"-r{identity.restart}" if identity.restart else "")


def label_of(name: str) -> str:
    """A cluster's or account's name as a label value."""
    return _NO_LABEL.sub("-", name)[:63].strip("-_.")


def labels_of(identity: jobs.JobIdentity, cluster: str = "") -> dict[str, str]:
    return {
        **({wellknown.LABEL_CLUSTER: label_of(cluster)} if cluster else {}),
        wellknown.LABEL_APP: wellknown.APP_VALUE,
        wellknown.LABEL_JOB_ID: str(identity.job_id),
        wellknown.LABEL_PLAIN_JOB_ID: str(identity.job_id),
        wellknown.LABEL_RESTART: str(identity.restart),
        wellknown.LABEL_USER_ID: str(identity.uid),
    }


def _labels_of_task(allocation: jobs.Allocation) -> dict[str, str]:
    if allocation.array is None:
        return {}
    array, task = allocation.array
    return {wellknown.LABEL_ARRAY_ID: str(array), wellknown.LABEL_ARRAY_TASK: str(task)}


def is_shared(path: bytes, policy: PodPolicy) -> bool:
    """Whether pods see the same file under this path."""
    return workdirs.lies_in(path, policy.shared_mounts)


def written_by_pod(path: bytes, policy: PodPolicy) -> bool:
    """Whether the pod can write this output file itself; otherwise penstockd fetches the output."""
    return path == b"/dev/null" or is_shared(path, policy)


def fetched(request: launches.LaunchRequest, policy: PodPolicy) -> tuple[int, ...]:
    """Streams (1 and 2) that the pod keeps for penstockd to fetch; none with the image's own entrypoint."""
    if request.pod.own_entrypoint:
        return ()
    paths = {1: request.stdout} | ({2: request.stderr} if request.stderr != request.stdout else {})
    return tuple(stream for stream, path in paths.items() if not written_by_pod(path, policy))


def image_of(request: launches.LaunchRequest, policy: PodPolicy, partition: str = "") -> str:
    """The script's image, or the partition's, or the site's default."""
    return request.pod.image or policy.image_in(partition)


def render_binding(name: str, namespace: str, node: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
