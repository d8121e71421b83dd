"""Takes a job's pods off a node and says so only when they are gone: 404 from the API, never just missing
from a cache.
"""

from __future__ import annotations

import msgspec

from penstock import crashpoints, errors, wellknown
from penstock.bridge import ports
from penstock.kube import reflecting, types

# Slurm has given the job its KillWait already. Never 0: that would remove the object without asking the node.
GRACE = 1
LOOK_AGAIN = 2.0


class PodList(msgspec.Struct):
    """What a list of pods answers."""

    items: list[types.Pod]


async def pods_of(kube: ports.Kube, job_id: int, *, cluster: str, namespace: str) -> list[types.Pod]:
    """All pods of a cluster's job as the API has them now; an empty namespace means all of them."""
    labels = {wellknown.LABEL_APP: wellknown.APP_VALUE, wellknown.LABEL_JOB_ID: str(job_id)}
    if cluster:
        labels[wellknown.LABEL_CLUSTER] = cluster
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    answer = await kube.get("pods", namespace=namespace, query={"labelSelector": selector})
    return msgspec.json.decode(answer, type=PodList).items


async def remove_from_node(
    job_id: int,
    node: str,
    *,
    cluster: str,
    namespace: str,
    kube: ports.Kube,
    pods: reflecting.Reflector[types.Pod],
) -> None:
    """Returns when no pod of the job is left on the node (empty: anywhere) or waiting for one;
    KubeUnavailable when that cannot be known.
    """
    for pod in await pods_of(kube, job_id, cluster=cluster, namespace=namespace):
        if not node or pod.spec.node_name in ("", node):
            await remove(pod, kube=kube, pods=pods)


async def remove(pod: types.Pod, *, kube: ports.Kube, pods: reflecting.Reflector[types.Pod]) -> None:
    """Delete one pod and wait until it is gone."""
    meta = pod.metadata
    with pods.subscribe(reflecting.key_of(meta)) as changes:
        try:
            await kube.delete("pods", namespace=meta.namespace, name=meta.name, uid=meta.uid, grace=GRACE)
        except (errors.KubeNotFound, errors.KubeConflict):
            return  # gone, or another pod has its name by now
        crashpoints.reach("release.deleted")
        while True:
            change = await changes.next(within=LOOK_AGAIN)
            if (change is None or change.deleted) and await _is_gone(kube, meta):
                return


async def _is_gone(kube: ports.Kube, meta: types.Meta) -> bool:
    try:
        answer = await kube.get("pods", namespace=meta.namespace, name=meta.name)
    except errors.KubeNotFound:
        return True
    return msgspec.json.decode(answer, type=types.Pod).metadata.uid != meta.uid
