"""Answers of the API as data. What cannot be read was cut off or came from somebody else: nothing is known
then.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import msgspec

from penstock import errors

T = TypeVar("T")


@functools.cache
def _decoder(kind: Any) -> Any:
    """One for each kind: making one costs more than an answer."""
    return msgspec.json.Decoder(kind)


def decode(answer: bytes | msgspec.Raw, kind: type[T]) -> T:
    """The answer as `kind`; KubeUnavailable when it is none."""
    decoder: msgspec.json.Decoder[T] = _decoder(kind)  # type: ignore[arg-type]  # classes are hashable
    try:
        return decoder.decode(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.KubeUnavailable(f"the Kubernetes API answered what cannot be read: {error}") from error
