"""Properties of a single object: how much a pod requests, how it ended, what a node can give."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Iterable, Mapping

import msgspec

from penstock import wellknown
from penstock.kube import indexes, types
from penstock.model import jobs, numbers, resources

CLOCK_SLACK = 2.0  # seconds by which the clocks of two machines may differ
SIGNAL_WORD = "signal"  # first line of the agent's termination message if the script died of a signal
BY_JOB, BY_NODE = "job", "node"
INDEXES: Mapping[str, indexes.Values[types.Pod]] = {
    BY_JOB: lambda pod: () if (job := job_id(pod)) is None else (job,),
    BY_NODE: lambda pod: (pod.spec.node_name,),
}
"""Of the cache of all pods. By job: our pods only. By node: "" for pods without one."""


def amount(quantities: Mapping[str, str | int | float]) -> resources.Amount:
    """A map of resource names to quantities in our units, rounded up."""
    return resources.Amount(
        millicpus=_up(quantities.get("cpu", 0), 1000),
        memory=_up(quantities.get("memory", 0), 1),
        gpus=_up(quantities.get(wellknown.GPU_RESOURCE, 0), 1),
        devices=resources.devices(
            (name, _up(count, 1))
            for name, count in quantities.items()
            if "/" in name and name != wellknown.GPU_RESOURCE
        ),
    )


def _up(text: str | int | float, factor: int) -> int:
    return -int(-resources.quantity(text) * factor // 1)


def requested(pod: types.Pod) -> resources.Amount:
    """What the pod takes of its node, as kube-scheduler counts it.

    Pod-level CPU and memory requests replace the sum of the containers; the runtime's overhead is added.
    """
    total, whole = _of_containers(pod), pod.spec.resources.requests
    named = amount(whole)
    if "cpu" in whole:
        total = dataclasses.replace(total, millicpus=named.millicpus)
    if "memory" in whole:
        total = dataclasses.replace(total, memory=named.memory)
    return total + amount(pod.spec.overhead)


def _of_containers(pod: types.Pod) -> resources.Amount:
    """The maximum of all containers and of each init container, with the sidecars beside it."""
    given = {one.name: one for one in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
    sidecars, peak = resources.Amount(), resources.Amount()
    for container in pod.spec.init_containers:
        own = _of_container(container, given.get(container.name))
        if container.restart_policy == "Always":
            sidecars += own
        else:
            peak = peak.largest(sidecars + own)
    total = sidecars
    for container in pod.spec.containers:
        total += _of_container(container, given.get(container.name))
    return total.largest(peak)


def _of_container(container: types.Container, given: types.ContainerStatus | None) -> resources.Amount:
    """Its requests or its allocation, if that is larger: a shrunk container keeps it for a while."""
    asked = amount(container.resources.requests)
    if given is None:
        return asked
    return asked.largest(amount(given.allocated)).largest(amount(given.resources.requests))


def is_over(pod: types.Pod) -> bool:
    """Whether the pod has ended and takes nothing of its node any more."""
    return pod.status.phase in ("Succeeded", "Failed")


def container_state(pod: types.Pod) -> types.ContainerState:
    """State of the job's container; empty before the kubelet has reported any."""
    return _state_of((wellknown.CONTAINER_NAME,), pod.status.container_statuses)


def init_state(pod: types.Pod) -> types.ContainerState:
    """State of our init container; empty if there is none."""
    names = (wellknown.LOOKING_NAME, wellknown.NAMES_NAME)
    return _state_of(names, pod.status.init_container_statuses)


def _state_of(names: Collection[str], statuses: Iterable[types.ContainerStatus]) -> types.ContainerState:
    return next((status.state for status in statuses if status.name in names), types.ContainerState())


def signal_of(end: types.Terminated) -> int:
    """The signal that the script died of; 0 if it exited, even with a status over 128."""
    told = end.message.partition("\n")[0].strip() == SIGNAL_WORD
    return end.exit_code - 128 if told and end.exit_code > 128 else 0


def has_started(pod: types.Pod) -> bool:
    """Whether the job's container runs or has run."""
    state = container_state(pod)
    return state.running is not None or state.terminated is not None


def is_reachable(pod: types.Pod, container: str = wellknown.CONTAINER_NAME) -> bool:
    """Whether the container runs or has run, and the pod's address is known."""
    state = _state_of((container,), (*pod.status.init_container_statuses, *pod.status.container_statuses))
    return bool(pod.status.pod_ip) and (state.running or state.terminated) is not None


def has_names(pod: types.Pod) -> bool:
    """Whether an init container makes the pod's /etc/hosts."""
    return any(container.name == wellknown.NAMES_NAME for container in pod.spec.init_containers)


def disruption(pod: types.Pod) -> str:
    """Why the cluster ended the pod (drain, eviction, preemption, node shutdown); empty if it did not."""
    for condition in pod.status.conditions:
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return f"{condition.reason}: {condition.message}" if condition.message else condition.reason
    return ""


def as_seen_by(cluster: str, pod: types.Pod) -> types.Pod:
    """Pods of another Slurm cluster count as foreign here: they take room and are never touched."""
    labels = pod.metadata.labels
    if (
        labels.get(wellknown.LABEL_APP) != wellknown.APP_VALUE
        or labels.get(wellknown.LABEL_CLUSTER, "") == cluster
    ):
        return pod
    kept = {name: value for name, value in labels.items() if name != wellknown.LABEL_APP}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=kept))


def job_id(pod: types.Pod) -> int | None:
    """The Slurm job of a pod of ours; None for other pods."""
    if pod.metadata.labels.get(wellknown.LABEL_APP) != wellknown.APP_VALUE:
        return None
    return numbers.natural(pod.metadata.labels.get(wellknown.LABEL_JOB_ID, ""))


def rank(pod: types.Pod) -> int | None:
    """The pod's rank in its gang."""
    return numbers.natural(pod.metadata.labels.get(wellknown.LABEL_RANK, ""))


def is_older_than(pod: types.Pod, moment: int) -> bool:
    """Whether the pod was created before that second since 1970, allowing for clocks that differ."""
    made = pod.metadata.creation_timestamp
    return made is not None and datetime.datetime.fromisoformat(made).timestamp() < moment - CLOCK_SLACK


def belongs_to(pod: types.Pod, identity: jobs.JobIdentity) -> bool:
    """Whether the pod belongs to this attempt."""
    return job_id(pod) == identity.job_id and pod.metadata.labels.get(wellknown.LABEL_RESTART) == str(
        identity.restart
    )
