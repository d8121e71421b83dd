"""Our client with kinds that it has never heard of, and every way to change an object."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from penstock import clock, errors
from penstock.kube import client as kube_client
from penstock.kube import kinds, kubeconfig, lists, reflectors, types
from penstock_lab import testing
from tests.conformance import client

CONFIG_MAPS = kinds.Kind("", "v1", "configmaps", "ConfigMap")
DEFINITIONS = kinds.Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
PATIENCE = 30.0


@pytest.fixture
async def kube(lab: testing.RunningLab) -> AsyncIterator[kube_client.KubeClient]:
    """Ours, with an administrator's rights."""
    async with kube_client.KubeClient(kubeconfig.load(lab.place.admin_kubeconfig)) as found:
        yield found


def config(**data: str) -> client.Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def decoded(answer: bytes) -> Any:
    return msgspec.json.decode(answer)


# -- patches ---------------------------------------------------------------------------------------------


async def test_a_merge_patch_changes_what_it_names(kube: kube_client.KubeClient, api: client.Client) -> None:
    """null removes, the rest stays."""
    await kube.create(CONFIG_MAPS, config(a="1", b="2"), namespace=api.namespace)
    changes = {"data": {"a": "3", "b": None}}
    changed = decoded(await kube.patch(CONFIG_MAPS, changes, namespace=api.namespace, name="c"))
    assert changed["data"] == {"a": "3"}


async def test_a_patch_of_an_older_version_is_a_conflict(
    kube: kube_client.KubeClient, api: client.Client
) -> None:
    """Somebody else has changed the object since it was read."""
    made = decoded(await kube.create(CONFIG_MAPS, config(a="1"), namespace=api.namespace))
    await kube.patch(CONFIG_MAPS, {"data": {"a": "2"}}, namespace=api.namespace, name="c")
    seen = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "3"}}
    with pytest.raises(errors.KubeConflict):
        await kube.patch(CONFIG_MAPS, seen, namespace=api.namespace, name="c")


async def test_a_strategic_patch_knows_the_elements_of_a_list(
    kube: kube_client.KubeClient, api: client.Client
) -> None:
    """A condition of another type is added, where a merge patch would replace the list."""
    api.create("pods", client.pod("p"))
    for type_ in ("example.org/one", "example.org/two"):
        changes = {"status": {"conditions": [{"type": type_, "status": "True"}]}}
        await kube.patch(kinds.PODS, changes, namespace=api.namespace, name="p", sub="status", strategic=True)
    found = msgspec.json.decode(await kube.get(kinds.PODS, namespace=api.namespace, name="p"), type=types.Pod)
    ours = [one.type for one in found.status.conditions if one.type.startswith("example.org/")]
    assert sorted(ours) == ["example.org/one", "example.org/two"]


async def test_patching_a_missing_object_is_not_found(
    kube: kube_client.KubeClient, api: client.Client
) -> None:
    """KubeNotFound, as with every verb."""
    with pytest.raises(errors.KubeNotFound):
        await kube.patch(CONFIG_MAPS, {"data": {}}, namespace=api.namespace, name="none")


# -- server-side apply -----------------------------------------------------------------------------------


async def test_apply_conflict_until_forced(kube: kube_client.KubeClient, api: client.Client) -> None:
    """KubeConflict has the API's message, which names the other; force makes the field ours."""
    space = api.namespace
    await kube.apply(CONFIG_MAPS, config(a="1"), manager="site", namespace=space)
    with pytest.raises(errors.KubeConflict, match='conflict with "site"') as refusal:
        await kube.apply(CONFIG_MAPS, config(a="2"), manager="other", namespace=space)
    assert refusal.value.status == 409
    forced = await kube.apply(CONFIG_MAPS, config(a="2"), manager="other", namespace=space, force=True)
    assert decoded(forced)["data"] == {"a": "2"}
    with pytest.raises(errors.KubeConflict, match='conflict with "other"'):
        await kube.apply(CONFIG_MAPS, config(a="1"), manager="site", namespace=space)


async def test_dry_run_creates_nothing(kube: kube_client.KubeClient, api: client.Client) -> None:
    """The response is the object as it would be."""
    space = api.namespace
    shown = await kube.apply(CONFIG_MAPS, config(a="1"), manager="site", namespace=space, dry_run=True)
    assert decoded(shown)["data"] == {"a": "1"}
    with pytest.raises(errors.KubeNotFound):
        await kube.get(CONFIG_MAPS, namespace=space, name="c")


# -- any group -------------------------------------------------------------------------------------------


class WidgetSpec(msgspec.Struct, frozen=True):
    """spec of a widget"""

    size: int = 0


class WidgetStatus(msgspec.Struct, frozen=True):
    """status of a widget"""

    phase: str = ""


class Widget(types.Object, frozen=True):
    """A kind that nobody knows but the cluster of this test."""

    spec: WidgetSpec = WidgetSpec()
    status: WidgetStatus = WidgetStatus()


@pytest.fixture
async def widgets(kube: kube_client.KubeClient) -> AsyncIterator[kinds.Kind]:
    """A custom resource with a status of its own, for this test alone."""
    group = f"t{uuid.uuid4().hex[:8]}.example.org"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }
    await kube.create(DEFINITIONS, definition)
    kind = kinds.Kind(group, "v1alpha1", "widgets", "Widget")
    await _served(kube, kind)
    yield kind
    await kube.delete(DEFINITIONS, name=f"widgets.{group}", uid=None)


async def _served(kube: kube_client.KubeClient, kind: kinds.Kind) -> None:
    """A real API server takes a moment; in a group that it does not know it answers 404 with no Status."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await kube.list(kind)
                return
            except (errors.KubeNotFound, errors.KubeUnavailable):
                await asyncio.sleep(0.1)


def widget(kind: kinds.Kind, name: str, size: int) -> client.Json:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "spec": {"size": size},
    }


async def test_every_verb_works_on_a_custom_resource(
    kube: kube_client.KubeClient, api: client.Client, widgets: kinds.Kind
) -> None:
    """Created, read, listed, patched, applied and deleted like what is built in."""
    space = api.namespace
    made = decoded(await kube.create(widgets, widget(widgets, "w", 1), namespace=space))
    await kube.patch(widgets, {"spec": {"size": 2}}, namespace=space, name="w")
    await kube.apply(widgets, widget(widgets, "v", 5), manager="site", namespace=space)
    found = await lists.everything(kube, widgets, Widget, namespace=space)
    assert {one.metadata.name: one.spec.size for one in found.items} == {"w": 2, "v": 5}
    with pytest.raises(errors.KubeConflict):
        await kube.delete(widgets, namespace=space, name="w", uid="00000000-0000-4000-8000-000000000000")
    await kube.delete(widgets, namespace=space, name="w", uid=made["metadata"]["uid"])
    with pytest.raises(errors.KubeNotFound):
        await kube.get(widgets, namespace=space, name="w")


async def test_a_status_is_changed_by_itself(
    kube: kube_client.KubeClient, api: client.Client, widgets: kinds.Kind
) -> None:
    """What is sent to the status changes nothing else, and what is sent to the object not its status."""
    space = api.namespace
    await kube.create(widgets, widget(widgets, "w", 1), namespace=space)
    changes = {"spec": {"size": 7}, "status": {"phase": "Ready"}}
    await kube.patch(widgets, changes, namespace=space, name="w", sub="status")
    await kube.patch(widgets, {"status": {"phase": "Lost"}}, namespace=space, name="w")
    for sub in ("", "status"):
        answer = await kube.get(widgets, namespace=space, name="w", sub=sub)
        found = msgspec.json.decode(answer, type=Widget)
        assert (found.spec.size, found.status.phase) == (1, "Ready")


async def test_a_reflector_follows_any_kind(
    kube: kube_client.KubeClient, api: client.Client, widgets: kinds.Kind
) -> None:
    """With an index by a field of its own, in one namespace."""
    space = api.namespace
    await kube.create(widgets, widget(widgets, "w", 1), namespace=space)
    reflector = reflectors.Reflector(
        kube,
        widgets,
        Widget,
        namespace=space,
        time=clock.SystemClock(),
        indexes={"size": lambda one: (one.spec.size,)},
    )
    task = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await reflector.listed.wait()
            assert [one.metadata.name for one in reflector.by("size", 1)] == ["w"]
            with reflector.subscribe(f"{space}/w") as changes:
                await kube.patch(widgets, {"spec": {"size": 2}}, namespace=space, name="w")
                while not reflector.by("size", 2):
                    await changes.next(within=PATIENCE)
                assert reflector.by("size", 1) == ()
                await kube.delete(widgets, namespace=space, name="w", uid=None)
                while reflector.objects:
                    await changes.next(within=PATIENCE)
        assert reflector.by("size", 2) == ()
    finally:
        task.cancel()


# -- parts of pods ---------------------------------------------------------------------------------------


async def test_a_pod_can_be_evicted(kube: kube_client.KubeClient, api: client.Client) -> None:
    """As a drain does it; one that nobody has bound is gone at once."""
    api.create("pods", client.pod("p"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    answer = await kube.create(kinds.PODS, eviction, namespace=api.namespace, name="p", sub="eviction")
    assert msgspec.json.decode(answer)["kind"] in ("Status", "Eviction")  # and not the pod
    api.gone("pods", "p")
    with pytest.raises(errors.KubeNotFound):
        await kube.get(kinds.PODS, namespace=api.namespace, name="p")
