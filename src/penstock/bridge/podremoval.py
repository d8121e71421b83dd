"""Takes pods away and says so only when they are gone: 404 from the API, never just missing from a cache or
from a list.
"""

from __future__ import annotations

import logging

from penstock import crashpoints, errors
from penstock.bridge import confirmation
from penstock.bridge.context import Context
from penstock.kube import kinds, reflectors, types

log = logging.getLogger(__name__)

# Slurm has given the job its KillWait already. Never 0: that would remove the object without asking the node.
GRACE = 1
LOOK_AGAIN = 2.0


async def delete(context: Context, pod: types.Pod, *, grace: int = GRACE) -> None:
    """Ask for a pod's end, unless it has ended by itself."""
    if not await _asked(context, pod, grace):
        log.info("pod %s had gone already", pod.metadata.name)
        _forget(context, pod)


async def remove(context: Context, pod: types.Pod) -> None:
    """Delete one pod and wait until it is gone; then it is so in the cache, too, however late its watch may
    be: the job's next attempt would be sent back because of a pod that is not there.
    """
    with context.pods.subscribe(reflectors.key_of(pod.metadata)) as changes:
        if await _asked(context, pod, GRACE):
            crashpoints.reach("release.deleted")
            while True:
                change = await changes.next(within=LOOK_AGAIN)
                is_over = change is None or change.deleted
                if is_over and not await confirmation.is_there(context.kube, pod.metadata):
                    break
    _forget(context, pod)


async def _asked(context: Context, pod: types.Pod, grace: int) -> bool:
    """Whether the pod is there and was asked to end; False when it is gone."""
    meta = pod.metadata
    try:
        await context.kube.delete(
            kinds.PODS, namespace=meta.namespace, name=meta.name, uid=meta.uid, grace=grace
        )
    except errors.KubeNotFound:
        return False
    except errors.KubeConflict as error:  # another pod has its name by now; if not, that was no answer
        if await confirmation.is_there(context.kube, meta):
            raise errors.KubeUnavailable(f"pod {meta.name} is not deleted: {error.message}") from error
        return False
    return True


def _forget(context: Context, pod: types.Pod) -> None:
    known = context.pods.objects.get(reflectors.key_of(pod.metadata))
    if known is not None and known.metadata.uid == pod.metadata.uid:
        context.pods.gone(known)
