"""A call as a pod's shim wrote it: hooks/shim.sh."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from penstock import errors

_FIELDS_BEFORE_WORDS = 2


_KEY = re.compile(r"[0-9]+-[0-9]+")


class BadRequest(errors.PenstockError):
    """Not of the form that shims write."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A command with all that it was given. Bytes, because none of it has to be text."""

    name: str
    words: tuple[bytes, ...] = ()
    environment: Mapping[bytes, bytes] = dataclasses.field(default_factory=dict)
    folder: bytes = b"/"
    umask: bytes = b"0022"


def key(word: str) -> str:
    """A call's id; ValueError if it is none."""
    if not _KEY.fullmatch(word):
        raise ValueError(f"{word[:40]!r} is no call")
    return word


def parse(data: bytes) -> Request:
    """BadRequest if a count or a name is wrong."""
    umask, _, rest = data.partition(b"\n")
    fields = rest.split(b"\0")
    if fields.pop() or len(fields) < _FIELDS_BEFORE_WORDS + 1 or not fields[1].isdigit():
        raise BadRequest("a pod sent a request without words")
    count, words = int(fields[1]), fields[_FIELDS_BEFORE_WORDS:]
    if not 0 < count <= len(words) or not umask.isdigit():
        raise BadRequest("a pod sent a request with a wrong number of words")
    name, *arguments = words[:count]
    variables = (entry.partition(b"=") for entry in words[count:])
    return Request(
        name=name.decode("ascii", "replace"),
        words=tuple(arguments),
        environment={name: value for name, equals, value in variables if equals},
        folder=fields[0],
        umask=umask,
    )
