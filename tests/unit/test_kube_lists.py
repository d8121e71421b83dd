"""Paginated lists."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock import errors
from penstock.kube import kinds, lists, types


class Pages:
    """Answers one page after the other, and records the requests."""

    def __init__(self, *pages: Any) -> None:
        self.pages = [msgspec.json.encode(page) for page in pages]
        self.asked: list[dict[str, Any]] = []

    async def list(self, kind: kinds.Kind, **how: Any) -> bytes:
        self.asked.append(how)
        return self.pages[len(self.asked) - 1]


def page(*names: str, more: str = "") -> dict[str, Any]:
    items = [{"metadata": {"name": name}} for name in names]
    return {"metadata": {"resourceVersion": "7", "continue": more}, "items": items}


async def test_all_pages_are_read() -> None:
    """With the same selectors each time; returns the version to watch from."""
    source = Pages(page("a", "b", more="next"), page("c"))
    found = await lists.everything(source, kinds.PODS, types.Pod, namespace="n", labels="x=y", fields="f=g")
    assert [pod.metadata.name for pod in found.items] == ["a", "b", "c"]
    assert found.version == "7"
    assert [how.pop("after") for how in source.asked] == ["", "next"]
    assert source.asked[0] == source.asked[1]
    assert {"namespace": "n", "labels": "x=y", "fields": "f=g"}.items() <= source.asked[0].items()


async def test_repeated_page_is_an_error() -> None:
    """Otherwise a proxy that repeats a page would be asked forever."""
    with pytest.raises(errors.KubeUnavailable, match="twice"):
        await lists.everything(Pages(page("a", more="x"), page("a", more="x")), kinds.PODS, types.Pod)


async def test_only_a_list_of_metadata_may_be_null() -> None:
    """A real API answers null for no objects if only metadata is requested."""
    nothing = {"metadata": {"resourceVersion": "7"}, "items": None}
    found = await lists.everything(Pages(nothing), kinds.SECRETS, types.Secret, metadata_only=True)
    assert found.items == ()
    with pytest.raises(errors.KubeUnavailable, match="not answer with a list of secrets"):
        await lists.everything(Pages(nothing), kinds.SECRETS, types.Secret)
