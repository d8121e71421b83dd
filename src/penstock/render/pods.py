"""A job's attempt as pods, one per node of its allocation.

Pure: same input, same manifest. Pods are made unbound with a schedulerName that nobody serves; binding them
is a later step, so a gang whose last pod is refused has never run.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from penstock import wellknown
from penstock.model import homes, jobs, launches
from penstock.render import directives, environment, folders

_NO_LABEL = re.compile(r"[^A-Za-z0-9_.-]")

Manifest = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodSettings:
    """What the site decides about pods."""

    default_image: str
    shared_mounts: tuple[str, ...]
    namespace_pattern: str
    kill_wait: int
    cluster: str = ""
    """The Slurm cluster's name, which tells our pods from those of another Slurm on the same Kubernetes."""
    trusted_partitions: frozenset[str] = frozenset()
    """Partitions in mode `trust`: nothing is checked, kube-scheduler places."""
    allowed_images: tuple[str, ...] = ()
    """Prefixes of images that jobs may use; none allows all."""
    forbidden_directives: frozenset[str] = frozenset()
    """#K8S_ directives that scripts may not have, by their name without the prefix."""
    image_pull_policy: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    priority_classes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """PriorityClass by "qos/NAME" or "partition/NAME"; the QOS is asked first."""
    gpu_labels: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    """Labels that a node with GPUs of a Slurm GRES type carries."""
    gpu_resources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Kubernetes' resource names of GRES types whose GPUs are no nvidia.com/gpu."""
    namespace_quota: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What a user's namespace may hold at most, as a ResourceQuota says it; none when empty."""
    isolate_namespaces: bool = True
    """Whether pods take connections from pods of the same namespace only."""
    reserved_namespaces: frozenset[str] = frozenset()
    """Namespaces of the site's own, where no job's pod may be."""
    partition_images: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Default images of partitions that have their own."""
    partition_tolerations: Mapping[str, list[dict[str, str]]] = dataclasses.field(default_factory=dict)
    partition_node_selectors: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    allowed_tolerations: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    """By partition, what scripts may bear themselves; not given, all or, in a trusted partition, nothing."""
    allowed_node_labels: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    mount_sources: Mapping[str, Manifest] = dataclasses.field(default_factory=dict)
    """Volume sources of shared mounts that are no folders of the node, by their path."""

    def is_trusted(self, partition: str) -> bool:
        return partition in self.trusted_partitions


def namespace_of(owner: launches.Owner, settings: PodSettings) -> str:
    """The namespace of a job of that user; UsageError when there is none for it."""
    return homes.name_for(
        settings.namespace_pattern,
        user=owner.name,
        uid=owner.uid,
        account=owner.account,
        cluster=settings.cluster,
        reserved=settings.reserved_namespaces,
    )


def pod_name(identity: jobs.JobIdentity, rank: int) -> str:
    """Always the same for the same attempt and rank: making it twice is a conflict, not a second pod.

    People type it, so it says no more than it must: slurm-job-17, slurm-job-17-r1, slurm-job-17-r1-n1.
    """
    return secret_name(identity) + (f"-n{rank}" if rank else "")


def secret_name(identity: jobs.JobIdentity) -> str:
    return f"slurm-job-{identity.job_id}" + (f"-r{identity.restart}" if identity.restart else "")


def label_of(name: str) -> str:
    """The name of a cluster or an account as a label's value."""
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


def is_shared(path: bytes, settings: PodSettings) -> bool:
    """Whether pods see the same file under the same name."""
    return folders.lies_in(path, settings.shared_mounts)


def written_by_pod(path: bytes, settings: PodSettings) -> bool:
    """Whether the pod itself can write this output file; otherwise penstockd fetches what belongs there."""
    return path == b"/dev/null" or is_shared(path, settings)


def fetched(request: launches.LaunchRequest, settings: PodSettings) -> tuple[int, ...]:
    """Which streams (1 and 2) the pod keeps for penstockd to fetch; an image that runs itself keeps none."""
    if request.pod.own_entrypoint:
        return ()
    paths = {1: request.stdout} | ({2: request.stderr} if request.stderr != request.stdout else {})
    return tuple(stream for stream, path in paths.items() if not written_by_pod(path, settings))


def image_of(request: launches.LaunchRequest, settings: PodSettings, partition: str = "") -> str:
    """The script's own image, or the partition's, or the site's default."""
    return request.pod.image or settings.partition_images.get(partition) or settings.default_image


def _looking_image(request: launches.LaunchRequest, settings: PodSettings, partition: str) -> str:
    """The site's image, if there is one: the script's may have a shell of its own making, or none."""
    sites = settings.partition_images.get(partition) or settings.default_image
    return sites or image_of(request, settings, partition)


def render_pod(
    allocation: jobs.Allocation,
    rank: int,
    *,
    owner: launches.Owner,
    request: launches.LaunchRequest,
    settings: PodSettings,
    strict_groups: bool = False,
) -> Manifest:
    """One rank's pod, not bound to a node yet; `strict_groups` where its node keeps groups of images out."""
    identity, home = allocation.identity, folders.home_of(owner, request.pod, settings.shared_mounts)
    own = [*_home_volume(rank, home), *_output_volume(rank, request, settings)]
    manifest: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(identity, rank),
            "namespace": namespace_of(owner, settings),
            "labels": labels_of(identity, settings.cluster)
            | {wellknown.LABEL_RANK: str(rank)}
            | _labels_of_task(allocation),
        },
        "spec": _site_choices(allocation, rank, settings)
        | {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": settings.kill_wait,
            "securityContext": _pod_security(owner, strict_groups=strict_groups),
            "containers": [_container(allocation, rank, request, settings, home)],
            "volumes": _volumes(identity, settings) + own,
        },
    }
    return directives.apply(
        manifest,
        request.pod,
        shared_mounts=settings.shared_mounts,
        looking_image=_looking_image(request, settings, allocation.partition),
    )


def _site_choices(allocation: jobs.Allocation, rank: int, settings: PodSettings) -> Manifest:
    """Who places the pod, its priority, where its image comes from, which kind of GPU its node must have."""
    chosen: Manifest = {}
    if not settings.is_trusted(allocation.partition):
        chosen["schedulerName"] = wellknown.SCHEDULER_NAME
    for key in (f"qos/{allocation.qos}", f"partition/{allocation.partition}"):
        if key in settings.priority_classes:
            chosen["priorityClassName"] = settings.priority_classes[key]
            break
    if settings.image_pull_secrets:
        chosen["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    if allocation.partition in settings.partition_tolerations:
        chosen["tolerations"] = list(settings.partition_tolerations[allocation.partition])
    labels = dict(settings.partition_node_selectors.get(allocation.partition, {}))
    for gpu_type in allocation.shares[rank].gpu_types:
        labels |= settings.gpu_labels.get(gpu_type, {})
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
    settings: PodSettings,
    home: folders.Home,
) -> Manifest:
    share = allocation.shares[rank].amount
    amounts = {"cpu": f"{share.millicpus}m", "memory": str(share.memory)}
    gpus = ((wellknown.GPU_RESOURCE, share.gpus), *share.devices)
    amounts |= {name: str(count) for name, count in gpus if count}
    return {
        "name": wellknown.CONTAINER_NAME,
        "image": image_of(request, settings, allocation.partition),
        **({"imagePullPolicy": settings.image_pull_policy} if settings.image_pull_policy else {}),
        **_process(rank, request, home),
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "penstock", "mountPath": wellknown.AGENT_MOUNT, "readOnly": True},
            *({"name": f"shared-{n}", "mountPath": path} for n, path in enumerate(settings.shared_mounts)),
            *({"name": volume["name"], "mountPath": home.path} for volume in _home_volume(rank, home)),
            *(
                {"name": volume["name"], "mountPath": wellknown.OUTPUT_MOUNT}
                for volume in _output_volume(rank, request, settings)
            ),
        ],
    }


def _process(rank: int, request: launches.LaunchRequest, home: folders.Home) -> Manifest:
    """What the container runs: our agent, or with #K8S_COMMAND=@entrypoint what the image itself does."""
    agent = ["/bin/sh", f"{wellknown.AGENT_MOUNT}/agent.sh"]
    if rank > 0:
        return {"command": [*agent, "hold"]}
    if not request.pod.own_entrypoint:
        return {"command": agent}
    pairs = [
        (name.decode(errors="replace"), value.decode(errors="replace"))
        for name, value in environment.variables(request, home)
    ]
    found: Manifest = {"env": [{"name": name, "value": directives.literally(value)} for name, value in pairs]}
    if request.arguments:
        found["args"] = [directives.literally(word.decode(errors="replace")) for word in request.arguments]
    workdir = request.pod.workdir
    return found | ({"workingDir": workdir} if workdir else {})


def _volumes(identity: jobs.JobIdentity, settings: PodSettings) -> list[Manifest]:
    shared = (
        {"name": f"shared-{n}", **_source(path, settings)} for n, path in enumerate(settings.shared_mounts)
    )
    return [
        {"name": "penstock", "secret": {"secretName": secret_name(identity), "defaultMode": 0o555}},
        *shared,
    ]


def _home_volume(rank: int, home: folders.Home) -> list[Manifest]:
    """A home for the job alone, where pods do not see its user's."""
    return [{"name": "home", "emptyDir": {}}] if rank == 0 and home.made else []


def _output_volume(rank: int, request: launches.LaunchRequest, settings: PodSettings) -> list[Manifest]:
    """Room for output that has to be fetched: on the node, and as long as the pod is there."""
    return [{"name": "output", "emptyDir": {}}] if rank == 0 and fetched(request, settings) else []


def _source(path: str, settings: PodSettings) -> Manifest:
    return settings.mount_sources.get(path) or {"hostPath": {"path": path, "type": "Directory"}}


def render_binding(name: str, namespace: str, node: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
