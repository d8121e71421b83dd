"""Answers `penstock jobs`, `show` and `check`: pods and timelines of jobs, reservations and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from penstock import wellknown
from penstock.bridge import bridge as bridging
from penstock.bridge import jobstore
from penstock.kube import podview, reflectors, types
from penstock.model import audits
from penstock.model.descriptions import JobView, PodView

MOST_WARNED = 8  # pods in one request whose warnings are read: each costs an API request
SECONDS_FOR_WARNINGS = 3.0


def describe(bridge: bridging.Bridge, job_ids: Iterable[int], *, uid: int, sees_all: bool) -> list[JobView]:
    """Views of these jobs, limited to what the uid may see. Without job ids: of all jobs that have pods or
    were refused, without timelines.
    """
    pods, known = bridge.context.pods, bridge.context.store.all()

    def is_visible(pod: types.Pod) -> bool:
        return sees_all or pod.metadata.labels.get(wellknown.LABEL_USER_ID) == str(uid)

    def view(job_id: int) -> JobView:
        own = list(filter(is_visible, pods.by(podview.BY_JOB, job_id)))
        return _view(bridge, job_id, own, uid=uid, sees_all=sees_all)

    asked = tuple(job_ids)
    if asked:
        return list(map(view, asked))
    with_pods = {podview.job_id(pod) for pod in filter(is_visible, pods.objects.values())}
    waiting = {job.job_id for job in known if job.refusals and (sees_all or job.uid == uid)}
    found = sorted(job_id for job_id in with_pods | waiting if job_id is not None)
    return [msgspec.structs.replace(view(job_id), timeline=()) for job_id in found]


async def with_warnings(bridge: bridging.Bridge, found: list[JobView]) -> list[JobView]:
    """The views with Kubernetes' warning events about pods that have not started: a mount, an image."""
    waiting = [
        pod
        for view in found
        for each in view.pods
        if (pod := bridge.context.pods.objects.get(f"{each.namespace}/{each.name}"))
        and not podview.has_started(pod)
    ][:MOST_WARNED]
    try:
        async with asyncio.timeout(SECONDS_FOR_WARNINGS):
            told = await asyncio.gather(*(bridge.follower.warnings(pod) for pod in waiting))
    except TimeoutError:
        return found
    known = {reflectors.key_of(pod.metadata): words for pod, words in zip(waiting, told, strict=True)}

    def with_own(pod: PodView) -> PodView:
        return msgspec.structs.replace(pod, warnings=known.get(f"{pod.namespace}/{pod.name}", ()))

    return [msgspec.structs.replace(view, pods=tuple(map(with_own, view.pods))) for view in found]


def audit(bridge: bridging.Bridge, bridged_partitions: Iterable[str]) -> audits.DaemonView:
    """What `penstock check` compares with Slurm and Kubernetes; for the hooks' uids only."""
    held = (
        audits.Held(
            job_id=allocation.identity.job_id,
            restart=allocation.identity.restart,
            node=share.node,
            millicpus=share.amount.millicpus,
            memory=share.amount.memory,
            gpus=share.amount.gpus,
            devices=share.amount.devices,
        )
        for allocation in bridge.context.store.reservations()
        for share in allocation.shares
    )
    policy = bridge.context.settings
    return audits.DaemonView(
        bridged_partitions=tuple(bridged_partitions),
        trusted_partitions=tuple(name for name, each in policy.partitions.items() if not each.scheduler),
        gpu_resources=policy.gpu_resources,
        held=tuple(held),
        ends=tuple(job.end for job in bridge.context.store.all() if job.end),
    )


def _view(
    bridge: bridging.Bridge, job_id: int, pods: list[types.Pod], *, uid: int, sees_all: bool
) -> JobView:
    shown = tuple(sorted(map(_pod_view, pods), key=lambda pod: (pod.restart, pod.rank)))
    job = bridge.context.store.find(job_id) or jobstore.Job(job_id)
    may_see = sees_all or job.uid == uid
    attempt = job.attempt
    own = attempt is not None and (sees_all or attempt.uid == uid)
    return JobView(
        job_id=job_id,
        pods=shown,
        timeline=tuple(job.steps) if may_see else (),
        stdout=attempt.stdout if attempt and own else b"",
        stderr=attempt.stderr if attempt and own else b"",
        refusals=job.refusals if may_see else (),
    )


def _pod_view(pod: types.Pod) -> PodView:
    labels = pod.metadata.labels
    state = podview.container_state(pod)
    waiting = state.waiting.reason if state.waiting else ""
    return PodView(
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        rank=int(labels.get(wellknown.LABEL_RANK, 0)),
        restart=int(labels.get(wellknown.LABEL_RESTART, 0)),
        node=pod.spec.node_name,
        status="Terminating" if pod.metadata.deletion_timestamp else waiting or pod.status.phase,
        image=pod.spec.containers[0].image if pod.spec.containers else "",
        reason=state.terminated.reason if state.terminated else pod.status.reason,
    )
