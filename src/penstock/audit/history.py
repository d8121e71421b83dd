"""I1 at every instant: a replay of all that the API told of its pods, for tests that keep the whole watch.

Looks (audit/collect.py) see a site now and then. The history has every change of every pod in the order in
which the API made them, so that not even a double booking of a moment can hide between two looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from penstock.audit import booking, snapshots
from penstock.judge import rights
from penstock.kube import podview, types
from penstock.model import resources


class PodEvent(msgspec.Struct, frozen=True):
    """One line of a watch on pods."""

    type: str
    object: types.Pod


def events(lines: Iterable[str]) -> Iterator[PodEvent]:
    """A kept watch, line by line; the last line may be cut off, and bookmarks are no pods."""
    for line in lines:
        if line.endswith("}") and '"type":"BOOKMARK"' not in line[:40].replace(" ", ""):
            yield msgspec.json.decode(line, type=PodEvent)


def judge(
    told: Iterable[PodEvent],
    allocatable: Mapping[str, resources.Amount],
    *,
    before: Iterable[types.Pod] = (),
) -> tuple[snapshots.Violation, ...]:
    """The first moment at which each node had more on it than it has; `before` were there already."""
    there = {pod.metadata.uid: pod for pod in before if rights.takes_room(pod)}
    found: dict[str, snapshots.Violation] = {}
    for event in told:
        pod = event.object
        there.pop(pod.metadata.uid, None)
        if event.type != "DELETED" and rights.takes_room(pod):
            there[pod.metadata.uid] = pod
            node = pod.spec.node_name
            if node in allocatable and node not in found:
                together = [one for one in there.values() if one.spec.node_name == node]
                found |= _too_much(node, together, allocatable[node], version=pod.metadata.resource_version)
    return tuple(found.values())


def _too_much(
    node: str, pods: list[types.Pod], room: resources.Amount, *, version: str
) -> dict[str, snapshots.Violation]:
    total = booking.requests_of(pods)
    if not total.shortages(room):
        return {}
    evidence = (
        f"allocatable: {booking.words(room)}",
        f"taken at resourceVersion {version}: {booking.words(total)}",
        *(f"{snapshots.name_of(pod)} requests {booking.words(podview.requested(pod))}" for pod in pods),
    )
    violation = snapshots.Violation(
        invariant="I1", kind="crowded-for-a-moment", subject=f"node {node}", evidence=evidence
    )
    return {node: violation}
