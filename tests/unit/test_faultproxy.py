"""The fault proxy between a client and a small API: what passes, what each fault does to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock.kube import client, kinds, kubeconfig
from penstock_lab import components, paths, spec
from penstock_lab.faultproxy import (
    controlsocket,
    faultrules,
    kuberequests,
    labcomponent,
    lies,
    messages,
    proxy,
)

Rule = faultrules.Rule
ITEMS = [{"metadata": {"name": f"p{number}", "namespace": "a", "uid": str(number)}} for number in range(20)]


def event(kind: str, uid: str, version: int) -> bytes:
    meta = {"uid": uid, "name": uid, "namespace": "a", "resourceVersion": str(version)}
    return msgspec.json.encode({"type": kind, "object": {"metadata": meta}}) + b"\n"


class Api:
    """Answers lists by ITEMS, watches by `events`, everything else by an empty object."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.events: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (head := await messages.read_head(reader)) is not None:
                await messages.read_request_body(reader, head)
                self.asked.append(head.first)
                await self._answer(head.first, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _answer(self, first: str, writer: asyncio.StreamWriter) -> None:
        if "watch=1" in first:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while line := await self.events.get():
                writer.write(messages.chunk(line))
                await writer.drain()
            writer.write(messages.LAST_CHUNK)
        else:
            found = {"metadata": {"resourceVersion": "9"}, "items": ITEMS} if "/pods " in first else {}
            writer.write(messages.answer(200, json.dumps(found).encode()))
        await writer.drain()


class World:
    """API, proxy, and a client on the far side."""

    def __init__(self, api: Api, serving: proxy.Proxy, kube: client.KubeClient) -> None:
        self.api, self.proxy, self.kube = api, serving, kube

    def set(self, *wanted: Rule) -> None:
        self.proxy.set(wanted)

    async def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in json.loads(await self.kube.list(kinds.PODS))["items"]]

    async def watched(self, count: int) -> list[str]:
        """Versions of the next events."""
        stream = self.kube.watch(kinds.PODS, version="1", seconds=60)
        found = []
        async with asyncio.timeout(10):
            async for one in stream:
                meta = json.loads(bytes(one.object))["metadata"]
                found.append(f"{one.type[0]}{meta.get('resourceVersion', '')}")
                if len(found) == count:
                    break
        return found


@pytest.fixture
async def world() -> AsyncIterator[World]:
    api = Api()
    async with await asyncio.start_server(api.serve, "127.0.0.1", 0) as server:
        upstream = proxy.Upstream("127.0.0.1", server.sockets[0].getsockname()[1], None)
        serving = proxy.Proxy(upstream, faultrules.Faults(seed=3))
        async with await asyncio.start_server(serving.serve, "127.0.0.1", 0) as front:
            port = front.sockets[0].getsockname()[1]
            kube = client.KubeClient(kubeconfig.Access(server=f"http://127.0.0.1:{port}", token="t"))
            yield World(api, serving, kube)
            await kube.close()
            for writer in tuple(serving.writers):
                proxy.reset(writer)
            api.events.put_nowait(b"")


async def test_no_faults(world: World) -> None:
    """Lists, objects and bodies are forwarded unchanged."""
    assert len(await world.names()) == 20
    await world.kube.create(kinds.PODS, {"metadata": {"name": "x"}}, namespace="a")
    assert [line.split()[0] for line in world.api.asked] == ["GET", "POST"]
    assert world.proxy.faults.requests == {"list pods": 1, "create pods": 1}


@pytest.mark.parametrize(
    ("rule", "reaches_the_api"),
    [
        (Rule(fault="unreachable"), False),
        (Rule(fault="cut"), False),
        (Rule(fault="status", status=500), False),
        (Rule(fault="swallow"), True),
        (Rule(fault="half"), True),
    ],
    ids=lambda value: value.fault if isinstance(value, Rule) else "",
)
async def test_faults_are_unavailable_to_the_client(world: World, rule: Rule, reaches_the_api: bool) -> None:
    """The client cannot know whether the API acted; afterwards all is normal."""
    world.set(rule)
    with pytest.raises(errors.KubeUnavailable):
        await world.kube.list(kinds.PODS)
    assert bool(world.api.asked) == reaches_the_api
    world.set()
    assert len(await world.names()) == 20


async def test_retry_after(world: World) -> None:
    """429 passes Retry-After to the client's error."""
    world.set(Rule(fault="status", status=429, seconds=7))
    with pytest.raises(errors.KubeUnavailable) as caught:
        await world.kube.list(kinds.PODS)
    assert caught.value.retry_after == 7


async def test_lists_lack_objects(world: World) -> None:
    """All of them, or some; of the resource that was named only."""
    world.set(Rule(fault="empty", resources=("pods",)))
    assert await world.names() == []
    world.set(Rule(fault="partial", keep=0.5))
    assert 0 < len(await world.names()) < 20
    world.set(Rule(fault="empty", resources=("nodes",)))
    assert len(await world.names()) == 20


async def test_a_rule_strikes_as_often_as_it_says(world: World) -> None:
    """Once, and then no more."""
    world.set(Rule(fault="status", times=1))
    with pytest.raises(errors.KubeUnavailable):
        await world.names()
    assert len(await world.names()) == 20


@pytest.mark.parametrize(
    ("rule", "seen"),
    [
        (None, ["A1", "M2", "M3"]),
        (Rule(fault="drop", times=1), ["M2", "M3"]),
        (Rule(fault="stale", times=3), ["A1", "M2", "M1", "M3", "M2"]),
        (Rule(fault="reorder", times=1), ["M2", "A1", "M3"]),
    ],
)
async def test_watch_faults(world: World, rule: Rule | None, seen: list[str]) -> None:
    """Events are lost, outdated, or reordered."""
    world.set(*([rule] if rule else []))
    for number, kind in enumerate(("ADDED", "MODIFIED", "MODIFIED"), start=1):
        world.api.events.put_nowait(event(kind, "u", number))
    assert await world.watched(len(seen)) == seen


async def test_a_running_watch_can_expire(world: World) -> None:
    """410, as an event, in the middle of the stream."""
    world.api.events.put_nowait(event("ADDED", "u", 1))
    stream = world.kube.watch(kinds.PODS, version="1", seconds=60)
    await anext(stream)
    world.set(Rule(fault="gone"))
    with pytest.raises(errors.KubeGone):
        await anext(stream)


async def test_a_running_watch_breaks_with_the_network(world: World) -> None:
    """Unreachable means that no connection stays."""
    world.api.events.put_nowait(event("ADDED", "u", 1))
    stream = world.kube.watch(kinds.PODS, version="1", seconds=60)
    await anext(stream)
    world.set(Rule(fault="unreachable"))
    with pytest.raises(errors.KubeUnavailable):
        await anext(stream)


async def test_control_socket(world: World, tmp_path: Path) -> None:
    """Rules in, counters out; invalid requests are refused in one line."""
    path = tmp_path / "c"
    async with await asyncio.start_unix_server(controlsocket.Server(world.proxy).serve, path):
        switch = controlsocket.Control(path)
        await asyncio.to_thread(switch.set, Rule(fault="status"))
        with pytest.raises(errors.KubeUnavailable):
            await world.names()
        figures = await asyncio.to_thread(switch.figures)
        assert (figures.requests, figures.struck) == ({"list pods": 1}, {"status": 1})
        await asyncio.to_thread(switch.clear)
        assert len(await world.names()) == 20
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b'{"rules": [{"fault": "nonsense"}]}\n')
        assert b"Invalid enum value" in await reader.readline()
        writer.close()
    with pytest.raises(errors.LabError, match="does not answer"):
        controlsocket.Control(tmp_path / "none").figures()


@pytest.mark.parametrize(
    ("method", "target", "meaning"),
    [
        ("GET", "/api/v1/pods?limit=1", ("list", "pods", "")),
        ("GET", "/api/v1/pods?watch=1", ("watch", "pods", "")),
        ("GET", "/api/v1/nodes/n1", ("get", "nodes", "n1")),
        ("GET", "/api/v1/namespaces/a/pods/p/log?follow=true", ("log", "pods", "p")),
        ("GET", "/api/v1/namespaces/a/pods/p/exec?command=true", ("exec", "pods", "p")),
        ("POST", "/api/v1/namespaces/a/pods/p/binding", ("bind", "pods", "p")),
        ("POST", "/api/v1/namespaces", ("create", "namespaces", "")),
        ("GET", "/api/v1/namespaces/a", ("get", "namespaces", "a")),
        ("DELETE", "/api/v1/namespaces/a/pods/p", ("delete", "pods", "p")),
        ("GET", "/apis/apps/v1/namespaces/a/deployments", ("list", "deployments", "")),
        ("GET", "/readyz", ("list", "", "")),
    ],
)
def test_requests_are_understood(method: str, target: str, meaning: tuple[str, str, str]) -> None:
    """Verb, resource and name, as the API means them."""
    found = kuberequests.understand(method, target)
    assert (found.verb, found.resource, found.name) == meaning


@given(method=st.sampled_from(["GET", "POST", "PUT", "HEAD"]), target=st.text())
def test_any_target_is_parsed(method: str, target: str) -> None:
    """Whatever a client requests can be matched by a rule."""
    assert kuberequests.understand(method, target).verb


@given(seed=st.integers(0, 2**32), count=st.integers(1, 30))
def test_the_same_seed_strikes_the_same_requests(seed: int, count: int) -> None:
    """A storm can be had again."""

    def strikes() -> list[bool]:
        faults = faultrules.Faults(seed=seed)
        faults.set((Rule(fault="cut", chance=0.5),))
        return [faults.strikes("cut", kuberequests.Request("get", "pods")) is not None for _ in range(count)]

    assert strikes() == strikes()


def test_non_lists_are_unchanged() -> None:
    """An error in place of a list has no items."""
    faults = faultrules.Faults()
    faults.set((Rule(fault="empty"),))
    body = lies.status_body(403)
    assert lies.shorten(body, kuberequests.Request("list", "pods"), faults) == body


LAB = spec.LabSpec(name="default", port_base=21000, user="alice", user_created=False, fault_proxy=True)


@pytest.mark.parametrize("kubernetes", [spec.DEV, spec.REAL])
def test_lab_puts_the_proxy_before_penstockd(kubernetes: str) -> None:
    """After the cluster's access step, on its own port; other labs have no proxy."""
    lab = msgspec.structs.replace(LAB, kubernetes=kubernetes)
    place = paths.LabPaths(Path("/lab"))
    daemons = {part.name: part for part in components.all_components(place, lab)}
    assert daemons["faultproxy"].port == 21000 + spec.port_count(4, kubernetes)
    assert "faultproxy" in daemons["penstockd"].after
    (access,) = labcomponent.all_steps(place, lab, after=components.cluster_ready_after(lab))
    assert access.name in daemons["faultproxy"].after
    plain = msgspec.structs.replace(lab, fault_proxy=False)
    assert "faultproxy" not in {part.name for part in components.all_components(place, plain)}
    assert labcomponent.all_steps(place, plain, after=()) == ()
