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
    pods.put_if_new(pod)
    with pods.subscribe(reflecting.key_of(pod.metadata)) as changes:
        while True:
            change = await changes.next(within=LOOK_ANYWAY)
            outcome = _outcome_of(change, pod.metadata.uid)
            if outcome is None and (change is None or change.deleted):
                outcome = await _ask(kube, pod)
            if outcome is not None:
                return outcome


def _outcome_of(change: reflecting.Change[types.Pod] | None, uid: str) -> outcomes.Outcome | None:
    """A pod's last state, which comes with its deletion, counts like any other."""
    if change is None or change.obj.metadata.uid != uid:
        return None
    return outcomes.outcome_of(change.obj)


async def _ask(kube: ports.Kube, pod: types.Pod) -> outcomes.Outcome | None:
    """What the API itself says: an end, certainly gone, or nothing new."""
    try:
        answer = await kube.get("pods", namespace=pod.metadata.namespace, name=pod.metadata.name)
    except errors.KubeNotFound:
        return outcomes.VANISHED
    except errors.KubeError:
        return None
    found = msgspec.json.decode(answer, type=types.Pod)
    return outcomes.outcome_of(found) if found.metadata.uid == pod.metadata.uid else outcomes.VANISHED
