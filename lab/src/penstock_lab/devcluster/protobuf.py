"""Decodes the protobuf objects that kubectl's sub-commands create.

kubectl 1.32 sends built-in kinds as protobuf. `kubectl create namespace|secret|configmap` and the evictions
of `kubectl drain` are supported; for other kinds the response is 415. Files given to kubectl are sent as
JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final

from penstock_lab.devcluster import statuses
from penstock_lab.devcluster.statuses import Json

MAGIC: Final = b"k8s\x00"
_Message = dict[int, tuple[str, Any]]
"""By field number: the name, and int, str, bytes (as base64), a message, or [value type] of a map."""
_METADATA: Final[_Message] = {
    1: ("name", str),
    2: ("generateName", str),
    3: ("namespace", str),
    11: ("labels", [str]),
    12: ("annotations", [str]),
}
_OPTIONS: Final[_Message] = {1: ("gracePeriodSeconds", int), 5: ("dryRun", str)}
_KINDS: Final[dict[str, _Message]] = {
    "Namespace": {1: ("metadata", _METADATA)},
    "Eviction": {1: ("metadata", _METADATA), 2: ("deleteOptions", _OPTIONS)},
    "Secret": {1: ("metadata", _METADATA), 2: ("data", [bytes]), 3: ("type", str)},
    "ConfigMap": {1: ("metadata", _METADATA), 2: ("data", [str]), 3: ("binaryData", [bytes])},
}
_TYPE: Final[_Message] = {1: ("apiVersion", str), 2: ("kind", str)}


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and content of every field, an int or bytes; fixed-size fields are skipped."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        if tag & 7 == 2:
            size, place = _varint(data, place)
            yield tag >> 3, data[place : place + size]
            place += size
        elif tag & 7 == 0:
            value, place = _varint(data, place)
            yield tag >> 3, value
        else:
            place += {1: 8, 5: 4}[tag & 7]


def _value(data: bytes, kind: Any) -> Any:
    if kind is bytes:
        return base64.b64encode(data).decode()
    return data.decode() if kind is str else _message(data, kind)


def _message(data: bytes, known: _Message) -> Json:
    found: Json = {}
    for number, content in _fields(data):
        name, kind = known.get(number, ("", None))
        if isinstance(content, int):
            found |= {name: content} if kind is int else {}
        elif isinstance(kind, list):
            pair = dict(_fields(content))
            found.setdefault(name, {})[pair.get(1, b"").decode()] = _value(pair.get(2, b""), kind[0])
        elif name and content:
            found[name] = _value(content, kind)
    return found


def decode(data: bytes) -> Json:
    """The object in an enveloped protobuf body."""
    try:
        envelope = dict(_fields(data[len(MAGIC) :]))
        about = _message(envelope[1], _TYPE)
        if about["kind"] not in _KINDS:
            form = f"application/vnd.kubernetes.protobuf for {about['kind']}; send JSON"
            raise statuses.unsupported_media_type(form)
        return {**about, **_message(envelope.get(2, b""), _KINDS[about["kind"]])}
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise statuses.bad_request(f"the body is not valid protobuf: {error!r}") from error
