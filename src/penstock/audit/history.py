"""I1 at every instant: replays a recorded watch on pods, for tests.

Snapshots (audit/collect.py) see a site at intervals. The watch has every change of every pod in the API's
order, so even a momentary double booking between two snapshots is found.
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
    """Events of a recorded watch; a truncated last line and bookmarks are skipped."""
    for line in lines:
        if line.endswith("}") and '"type":"BOOKMARK"' not in line[:40].replace(" ", ""):
            yield msgspec.json.decode(line, type=PodEvent)


def judge(
    told: Iterable[PodEvent],
    allocatable: Mapping[str, resources.Amount],
    *,
    before: Iterable[types.Pod] = (),
) -> tuple[snapshots.Violation, ...]:
    """The first overcommitment of each node; `before` are the pods from before the watch."""
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
                found |= _excess(node, together, allocatable[node], version=pod.metadata.resource_version)
    return tuple(found.values())


def _excess(
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
