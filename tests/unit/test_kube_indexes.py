"""Indexes of a reflector: after any events they equal a full search."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock import errors
from penstock.kube import indexes, kinds, reflectors, types
from tests.unit import fakes

NAMES, NODES, LABELS = "abcd", ("", "n1", "n2"), ("x", "y")
INDEXES: dict[str, indexes.Values[types.Pod]] = {
    "node": lambda pod: (pod.spec.node_name,),
    "labels": lambda pod: (*pod.metadata.labels, *pod.metadata.labels),  # each twice, or none
}


class Server:
    """Serves the last list, and confirms by name the objects it is told to."""

    def __init__(self) -> None:
        self.version = "1"
        self.items: list[types.Pod] = []
        self.there: frozenset[str] = frozenset()

    async def list(self, kind: kinds.Kind, **_: Any) -> bytes:
        return msgspec.json.encode({"metadata": {"resourceVersion": self.version}, "items": self.items})

    async def get(self, kind: kinds.Kind, *, name: str, namespace: str = "") -> bytes:
        if name not in self.there:
            raise errors.KubeNotFound("not found", status=404)
        return b"{}"

    async def watch(self, kind: kinds.Kind, **_: Any) -> AsyncIterator[types.Event]:
        return
        yield


@some.composite
def pods(draw: some.DrawFn) -> types.Pod:
    """One of a few names, so that the same names occur as later, earlier or other objects."""
    name = draw(some.sampled_from(NAMES))
    meta = types.Meta(
        name=name,
        namespace="default",
        uid=f"{name}{draw(some.integers(1, 2))}",
        resource_version=str(draw(some.integers(1, 20))),
        labels=dict.fromkeys(draw(some.sets(some.sampled_from(LABELS))), "1"),
    )
    return types.Pod(metadata=meta, spec=types.PodSpec(node_name=draw(some.sampled_from(NODES))))


EVENTS = some.tuples(some.sampled_from(["ADDED", "MODIFIED", "DELETED"]), pods())
LISTS = some.tuples(
    some.integers(1, 20), some.lists(pods(), max_size=4), some.frozensets(some.sampled_from(NAMES))
)
STEPS = some.one_of(
    EVENTS.map(lambda found: ("event", found)),
    pods().map(lambda found: ("put", found)),
    pods().map(lambda found: ("gone", found)),
    LISTS.map(lambda found: ("relist", found)),
    LISTS.map(lambda found: ("restored", found)),
)


async def play(reflector: reflectors.Reflector[types.Pod], server: Server, step: str, what: Any) -> None:
    if step == "event":
        word, pod = what
        reflector.apply(types.Event(type=word, object=msgspec.Raw(msgspec.json.encode(pod))))
    elif step in ("put", "gone"):
        getattr(reflector, step)(what)
    else:
        version, server.items, server.there = what
        server.version = str(version)
        for _ in range(reflectors.OLD_LISTS if step == "restored" else 1):
            try:
                await reflector.relist()
            except errors.KubeUnavailable:
                continue


async def differences(steps: list[tuple[str, Any]]) -> list[str]:
    """Where the index and a full search differ, after each step."""
    server, wrong = Server(), []
    reflector = reflectors.Reflector(server, kinds.PODS, types.Pod, time=fakes.ManualClock(), indexes=INDEXES)
    for step, what in steps:
        await play(reflector, server, step, what)
        found = tuple(reflector.objects.values())
        for name, values in INDEXES.items():
            known = {value for pod in found for value in values(pod)}
            for value in known | {*NODES, *LABELS}:
                wanted = {pod.metadata.name: pod for pod in found if value in values(pod)}
                if {pod.metadata.name: pod for pod in reflector.by(name, value)} != wanted:
                    wrong.append(f"{step}: {name} {value}")
            if set(reflector._indexes[name]._found) != known:
                wrong.append(f"{step}: {name} keeps something of what is gone")
    return wrong


@given(some.lists(STEPS, max_size=12))
def test_index_equals_a_full_search(steps: list[tuple[str, Any]]) -> None:
    """After changes, deletions, incomplete or outdated lists, and a cluster restored from a backup."""
    assert asyncio.run(differences(steps)) == []


def test_index_keeps_its_order() -> None:
    """Messages that name several pods name them in the same order each time."""
    reflector = reflectors.Reflector(
        Server(), kinds.PODS, types.Pod, time=fakes.ManualClock(), indexes=INDEXES
    )
    for name, version in (("a", "1"), ("b", "1"), ("a", "2")):
        reflector.put(fakes.pod(name, version=version))
    assert [pod.metadata.name for pod in reflector.by("node", "n1")] == ["a", "b"]


def test_unknown_index_is_an_error() -> None:
    reflector = reflectors.Reflector(Server(), kinds.PODS, types.Pod, time=fakes.ManualClock())
    with pytest.raises(KeyError):
        reflector.by("node", "n1")
