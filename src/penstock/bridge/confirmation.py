"""Asks the API itself, by name or node, before room is reserved, a node freed or a pod called gone.

The cache may lack objects or still have deleted ones. So the pods of a node are listed again, and pods that
only the cache has are read by name. In doubt a pod exists: one wrong answer then costs a wait, not a double
booking.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock import errors
from penstock.bridge import protocols
from penstock.bridge.concurrently import gather
from penstock.kube import codec, kinds, lists, podview, reflectors, types

CONCURRENT = 16  # reads at a time


async def pod(kube: protocols.Kube, namespace: str, name: str) -> types.Pod | None:
    """The pod, or None if the API answers 404."""
    try:
        return codec.decode(await kube.get(kinds.PODS, namespace=namespace, name=name), types.Pod)
    except errors.KubeNotFound:
        return None


async def is_there(kube: protocols.Kube, meta: types.Meta) -> bool:
    """Whether a pod of this name and uid exists."""
    found = await pod(kube, meta.namespace, meta.name)
    return found is not None and found.metadata.uid == meta.uid


async def node(kube: protocols.Kube, name: str) -> types.Node | None:
    """The node, or None if the API answers 404."""
    try:
        return codec.decode(await kube.get(kinds.NODES, name=name), types.Node)
    except errors.KubeNotFound:
        return None


async def nodes(kube: protocols.Kube, names: Sequence[str]) -> dict[str, types.Node]:
    """The nodes that exist, by their key in the cache."""
    found = await gather((node(kube, name) for name in names), at_once=CONCURRENT)
    return {reflectors.key_of(one.metadata): one for one in found if one is not None}


async def pods_on(
    kube: protocols.Kube, names: Sequence[str], cache: reflectors.Reflector[types.Pod]
) -> list[types.Pod]:
    """Every pod on the nodes by a fresh list, and those of the cache that still exist and have not ended."""
    shown = (one for name in dict.fromkeys(names) for one in cache.by(podview.BY_NODE, name))
    known = [one for one in shown if not podview.is_over(one)]
    selectors = (f"spec.nodeName={name}" for name in names)
    listing = (lists.everything(kube, kinds.PODS, types.Pod, fields=one) for one in selectors)
    each = await gather(listing, at_once=CONCURRENT)
    here = (one for found in each for one in found.items if one.spec.node_name in names)
    listed = {one.metadata.uid: cache.view(one) for one in here}
    doubtful = [one for one in known if one.metadata.uid not in listed]
    there = await gather((is_there(kube, one.metadata) for one in doubtful), at_once=CONCURRENT)
    left = [one for one, still in zip(doubtful, there, strict=True) if still]
    return [*listed.values(), *left]
