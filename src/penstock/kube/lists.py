"""Lists a whole collection page by page: an API server should not send thousands of objects at once."""

from __future__ import annotations

import dataclasses
from typing import Generic, Protocol, TypeVar

import msgspec

from penstock import errors
from penstock.kube import codec, kinds, types

T = TypeVar("T")
PAGE = 1000


class Source(Protocol):
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
    metadata: types.ListMeta
    items: list[T] | None  # null if there are none and only metadata was requested


@dataclasses.dataclass(frozen=True)
class Listed(Generic[T]):
    """The objects, and the resource version to watch from."""

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
    """All objects that match the selectors. KubeUnavailable if that cannot be known."""
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
            raise errors.KubeUnavailable(f"the Kubernetes API did not answer with a list of {kind}")
        found += page.items or ()
        if not page.metadata.continue_:
            return Listed(tuple(found), page.metadata.resource_version)
        if page.metadata.continue_ == after:
            raise errors.KubeUnavailable("list pagination is stuck: the same page came twice")
        after = page.metadata.continue_
