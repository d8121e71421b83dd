"""Takes a job's pods off a node and says so only when they are gone: 404 from the API, never just missing
from a cache or from a list.

A job's pods are looked for in the shared picture and by the names that they must have; by label only where
neither finds one. A list may leave out what is there, a name cannot.
"""

from __future__ import annotations

from penstock import crashpoints, errors, wellknown
from penstock.bridge import confirming, ports
from penstock.kube import reading, reflecting, types

# Slurm has given the job its KillWait already. Never 0: that would remove the object without asking the node.
GRACE = 1
LOOK_AGAIN = 2.0


async def remove_from_node(
    job_id: int,
    node: str,
    *,
    names: tuple[str, ...],
    waiting: bool,
    cluster: str,
    namespace: str,
    kube: ports.Kube,
    pods: reflecting.Reflector[types.Pod],
) -> None:
    """Returns when no pod of the job is left on the node (empty: anywhere) or, if `waiting` ones may be meant
    for it, without a node; KubeUnavailable when that cannot be known. `names` are those that the job's pods
    there would have.
    """
    places = ("", node) if waiting else (node,)
    found = [pod for pod in pods.objects.values() if reading.job_id(pod) == job_id]
    for name in names:
        pod = await confirming.pod(kube, namespace, name)
        if pod is not None and reading.job_id(pods.view(pod)) == job_id:
            found.append(pod)
    found = [pod for pod in found if not node or pod.spec.node_name in places]
    if not found:
        labels = {wellknown.LABEL_APP: wellknown.APP_VALUE, wellknown.LABEL_JOB_ID: str(job_id)}
        labels |= {wellknown.LABEL_CLUSTER: cluster} if cluster else {}
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        found += await confirming.pods(kube, namespace=namespace, query={"labelSelector": selector})
    for pod in {pod.metadata.uid: pod for pod in found}.values():
        if not node or pod.spec.node_name in places:
            await remove(pod, kube=kube, pods=pods)


async def remove(pod: types.Pod, *, kube: ports.Kube, pods: reflecting.Reflector[types.Pod]) -> None:
    """Delete one pod and wait until it is gone; then it is so in the shared picture, too, however late its
    watch may be: the job's next attempt would be sent back because of a pod that is not there.
    """
    await _until_gone(pod, kube=kube, pods=pods)
    known = pods.objects.get(reflecting.key_of(pod.metadata))
    if known is not None and known.metadata.uid == pod.metadata.uid:
        pods.gone(known)


async def _until_gone(pod: types.Pod, *, kube: ports.Kube, pods: reflecting.Reflector[types.Pod]) -> None:
    meta = pod.metadata
    with pods.subscribe(reflecting.key_of(meta)) as changes:
        try:
            await kube.delete("pods", namespace=meta.namespace, name=meta.name, uid=meta.uid, grace=GRACE)
        except errors.KubeNotFound:
            return
        except errors.KubeConflict as error:  # another pod has its name by now; if not, that was no answer
            if await confirming.is_there(kube, meta):
                raise errors.KubeUnavailable(f"pod {meta.name} is not deleted: {error.message}") from error
            return
        crashpoints.reach("release.deleted")
        while True:
            change = await changes.next(within=LOOK_AGAIN)
            if (change is None or change.deleted) and not await confirming.is_there(kube, meta):
                return
