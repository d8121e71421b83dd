"""Waits for the end of a job's rank 0: one shared watch for all, a GET only when that seems to have missed
something.
"""

from __future__ import annotations

import msgspec

from penstock import errors
from penstock.bridge import outcomes, ports
from penstock.kube import reflecting, types

LOOK_ANYWAY = 60.0  # seconds without news after which the API is asked directly


async def end_of(
    pod: types.Pod, *, kube: ports.Kube, pods: reflecting.Reflector[types.Pod]
) -> outcomes.Outcome:
    """The outcome, however long it takes. Trouble with the API is never an outcome."""
    key, uid = reflecting.key_of(pod.metadata), pod.metadata.uid
    pods.put_if_new(pod)
    known: types.Pod | None = None
    while True:
        seen = await pods.change(key, known, within=LOOK_ANYWAY)
        if seen is None or seen.metadata.uid != uid or seen is known:
            seen = await _ask(kube, pod, known)
            if seen is None:
                return outcomes.VANISHED
        outcome = outcomes.outcome_of(seen)
        if outcome is not None:
            return outcome
        known = pods.objects.get(key)


async def _ask(kube: ports.Kube, pod: types.Pod, known: types.Pod | None) -> types.Pod | None:
    """The pod as the API has it; None when it is certainly another or none; what was known when nothing can
    be known.
    """
    try:
        answer = await kube.get("pods", namespace=pod.metadata.namespace, name=pod.metadata.name)
    except errors.KubeNotFound:
        return None
    except errors.KubeError:
        return known or pod
    found = msgspec.json.decode(answer, type=types.Pod)
    return found if found.metadata.uid == pod.metadata.uid else None
