"""Decodes answers of the API. An unreadable answer may come from a proxy, so it is KubeUnavailable."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import msgspec

from penstock import errors

T = TypeVar("T")


@functools.cache
def _decoder(kind: Any) -> Any:
    """Cached per type: creating a decoder costs more than decoding an answer."""
    return msgspec.json.Decoder(kind)


def decode(answer: bytes | msgspec.Raw, kind: type[T]) -> T:
    decoder: msgspec.json.Decoder[T] = _decoder(kind)  # type: ignore[arg-type]  # classes are hashable
    try:
        return decoder.decode(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.KubeUnavailable(f"the Kubernetes API sent an unreadable answer: {error}") from error
