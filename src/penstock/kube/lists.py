"""Everything of a kind, page by page: an API server is not asked for thousands of objects at once."""

from __future__ import annotations

import dataclasses
from typing import Generic, Protocol, TypeVar

import msgspec

from penstock import errors
from penstock.kube import codec, kinds, types

T = TypeVar("T")
PAGE = 1000


class Source(Protocol):
    """What is asked for pages."""

    async def list(
        self,
        kind: kinds.Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        after: str = "",
        metadata_only: bool = False,
    ) -> bytes: ...


class Page(msgspec.Struct, Generic[T]):
    """One answer."""

    metadata: types.ListMeta
    items: list[T] | None
    """null when there is none of a kind of which only the metadata was asked for."""


@dataclasses.dataclass(frozen=True)
class Listed(Generic[T]):
    """What there was, and the version to watch from."""

    items: tuple[T, ...]
    version: str


async def everything(
    source: Source,
    kind: kinds.Kind,
    struct: type[T],
    *,
    namespace: str = "",
    labels: str = "",
    fields: str = "",
    metadata_only: bool = False,
) -> Listed[T]:
    """All objects that the selectors choose; KubeUnavailable when that cannot be known."""
    found: list[T] = []
    after = ""
    while True:
        answer = await source.list(
            kind,
            namespace=namespace,
            labels=labels,
            fields=fields,
            limit=PAGE,
            after=after,
            metadata_only=metadata_only,
        )
        page = codec.decode(answer, Page[struct])  # type: ignore[valid-type]  # a class at run time
        if page.items is None and not metadata_only:
            raise errors.KubeUnavailable(f"the Kubernetes API answered no list of {kind}")
        found += page.items or ()
        if not page.metadata.continue_:
            return Listed(tuple(found), page.metadata.resource_version)
        if page.metadata.continue_ == after:
            raise errors.KubeUnavailable("a list does not go on: the same page came twice")
        after = page.metadata.continue_
