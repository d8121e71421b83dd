"""Deletes pods. One is gone only by a 404 of the API, never because a cache or a list lacks it."""

from __future__ import annotations

import logging

from penstock import crashpoints, errors
from penstock.bridge import confirmation
from penstock.bridge.context import Context
from penstock.kube import kinds, reflectors, types

log = logging.getLogger(__name__)

GRACE = 1  # Slurm has waited KillWait already. Never 0: that removes the object without asking the node
LOOK_AGAIN = 2.0


async def delete(context: Context, pod: types.Pod, *, grace: int = GRACE) -> None:
    """Request a pod's deletion, without waiting for it."""
    if not await _request_deletion(context, pod, grace):
        log.info("pod %s was gone already", pod.metadata.name)
        _forget(context, pod)


async def remove(context: Context, pod: types.Pod) -> None:
    """Delete a pod and wait until it is gone. It is removed from the cache, too, whose watch may be late: the
    job's next attempt would be refused because of it.
    """
    with context.pods.subscribe(reflectors.key_of(pod.metadata)) as changes:
        if await _request_deletion(context, pod, GRACE):
            crashpoints.reach("release.deleted")
            while True:
                change = await changes.next(within=LOOK_AGAIN)
                is_over = change is None or change.deleted
                if is_over and not await confirmation.is_there(context.kube, pod.metadata):
                    break
    _forget(context, pod)


async def _request_deletion(context: Context, pod: types.Pod, grace: int) -> bool:
    """False if the pod is gone already."""
    meta = pod.metadata
    try:
        await context.kube.delete(
            kinds.PODS, namespace=meta.namespace, name=meta.name, uid=meta.uid, grace=grace
        )
    except errors.KubeNotFound:
        return False
    except errors.KubeConflict as error:  # another pod may have its name by now
        if await confirmation.is_there(context.kube, meta):
            raise errors.KubeUnavailable(f"pod {meta.name} is not deleted: {error.message}") from error
        return False
    return True


def _forget(context: Context, pod: types.Pod) -> None:
    known = context.pods.objects.get(reflectors.key_of(pod.metadata))
    if known is not None and known.metadata.uid == pod.metadata.uid:
        context.pods.gone(known)
