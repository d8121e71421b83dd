"""Makes all pods of a job's attempt or none: unbound pods first, then the Secret, then the bindings.

Every step may have been done before by a penstockd that was killed: a conflict means "it is there", and what
is there is checked to be of this attempt and this user before it is used.
"""

from __future__ import annotations

import contextlib
import logging

import msgspec

from penstock import errors
from penstock.bridge import ports
from penstock.kube import reading, types
from penstock.model import jobs, launches
from penstock.render import pods as rendering

log = logging.getLogger(__name__)


class GangRefused(errors.PenstockError):
    """Kubernetes does not take a part of the gang; nothing of it is left."""


async def create(
    kube: ports.Kube,
    allocation: jobs.Allocation,
    *,
    owner: launches.Owner,
    request: launches.LaunchRequest,
    settings: rendering.PodSettings,
) -> tuple[types.Pod, ...]:
    """The gang's pods, all bound to their nodes."""
    made: list[types.Pod] = []
    try:
        await _ensure_namespace(kube, owner, settings)
        for rank in range(len(allocation.shares)):
            manifest = rendering.render_pod(allocation, rank, owner=owner, request=request, settings=settings)
            made.append(await _create_pod(kube, manifest, allocation.identity))
        await _create_secret(
            kube, made[0], allocation.identity, owner=owner, request=request, settings=settings
        )
        for pod, share in zip(made, allocation.shares, strict=True):
            await _bind(kube, pod, share.node)
    except errors.KubeUnavailable:
        raise
    except (errors.KubeError, errors.UsageError) as error:
        await _remove(kube, made)
        raise GangRefused(error.message, hint=error.hint) from error
    return tuple(made)


async def _ensure_namespace(kube: ports.Kube, owner: launches.Owner, settings: rendering.PodSettings) -> None:
    name = rendering.namespace_of(owner, settings)
    with contextlib.suppress(errors.KubeConflict):
        await kube.create("namespaces", rendering.render_namespace(name, owner))


async def _create_pod(
    kube: ports.Kube, manifest: rendering.Manifest, identity: jobs.JobIdentity
) -> types.Pod:
    meta = manifest["metadata"]
    try:
        answer = await kube.create("pods", manifest, namespace=meta["namespace"])
    except errors.KubeConflict:
        answer = await kube.get("pods", namespace=meta["namespace"], name=meta["name"])
    pod = msgspec.json.decode(answer, type=types.Pod)
    if not reading.belongs_to(pod, identity) or pod.metadata.deletion_timestamp:
        raise errors.KubeError(
            f"a pod {meta['namespace']}/{meta['name']} is there already and is not this job's"
        )
    return pod


async def _create_secret(
    kube: ports.Kube,
    first: types.Pod,
    identity: jobs.JobIdentity,
    *,
    owner: launches.Owner,
    request: launches.LaunchRequest,
    settings: rendering.PodSettings,
) -> None:
    manifest = rendering.render_secret(
        identity, owner=owner, request=request, settings=settings, owner_pod_uid=first.metadata.uid
    )
    with contextlib.suppress(errors.KubeConflict):
        await kube.create("secrets", manifest, namespace=first.metadata.namespace)


async def _bind(kube: ports.Kube, pod: types.Pod, node: str) -> None:
    if pod.spec.node_name == node:
        return
    meta = pod.metadata
    binding = rendering.render_binding(meta.name, meta.namespace, node)
    await kube.create("pods", binding, namespace=meta.namespace, name=meta.name, sub="binding")


async def _remove(kube: ports.Kube, made: list[types.Pod]) -> None:
    for pod in made:
        try:
            await kube.delete(
                "pods",
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                uid=pod.metadata.uid,
                grace=1,
            )
        except errors.KubeError as error:
            log.warning("pod %s of a refused gang is left to the sweep: %s", pod.metadata.name, error.message)
