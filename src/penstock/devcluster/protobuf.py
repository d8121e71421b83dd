"""Just enough protobuf to understand what kubectl's own sub-commands create.

kubectl 1.32 sends built-in kinds in that form. `kubectl create namespace|secret|configmap` and the
evictions of `kubectl drain` are covered; for anything else the answer is that the format is not supported.
Files given to kubectl always arrive as JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.devcluster import statuses
from penstock.devcluster.statuses import Json

MAGIC: Final = b"k8s\x00"
_Decode = Callable[[bytes], Any]


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of every length-delimited field; numbers and fixed-size fields are passed over."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        wire = tag & 7
        if wire == 2:
            size, place = _varint(data, place)
            yield tag >> 3, data[place : place + size]
            place += size
        elif wire == 0:
            _, place = _varint(data, place)
        else:
            place += {1: 8, 5: 4}[wire]


def _text(data: bytes) -> str:
    return data.decode()


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _pair(decode: _Decode) -> _Decode:
    def pair(data: bytes) -> tuple[str, Any]:
        found = dict(fields(data))
        return found.get(1, b"").decode(), decode(found.get(2, b""))

    return pair


def _message(**known: tuple[int, _Decode, bool]) -> _Decode:
    """A decoder for a message: name=(field number, decoder, is it a map)."""

    def message(data: bytes) -> Json:
        found: Json = {}
        for number, content in fields(data):
            for name, (wanted, decode, is_map) in known.items():
                if number == wanted and is_map:
                    key, value = decode(content)
                    found.setdefault(name, {})[key] = value
                elif number == wanted and content:
                    found[name] = decode(content)
        return found

    return message


_STRINGS: Final = _pair(_text)
_METADATA: Final = _message(
    name=(1, _text, False),
    generateName=(2, _text, False),
    namespace=(3, _text, False),
    labels=(11, _STRINGS, True),
    annotations=(12, _STRINGS, True),
)
_KINDS: Final[dict[str, _Decode]] = {
    "Namespace": _message(metadata=(1, _METADATA, False)),
    "Eviction": _message(metadata=(1, _METADATA, False)),
    "Secret": _message(
        metadata=(1, _METADATA, False), data=(2, _pair(_encoded), True), type=(3, _text, False)
    ),
    "ConfigMap": _message(
        metadata=(1, _METADATA, False), data=(2, _STRINGS, True), binaryData=(3, _pair(_encoded), True)
    ),
}
_TYPE: Final = _message(apiVersion=(1, _text, False), kind=(2, _text, False))
_ENVELOPE: Final = _message(typeMeta=(1, _TYPE, False), raw=(2, bytes, False))


def decode(data: bytes) -> Json:
    """The object in an enveloped protobuf body."""
    try:
        envelope = _ENVELOPE(data[len(MAGIC) :])
        kind = envelope["typeMeta"]["kind"]
        decoder = _KINDS.get(kind)
        if decoder is None:
            raise statuses.unsupported_media_type(
                f"application/vnd.kubernetes.protobuf for {kind}; send JSON"
            )
        found: Json = {**envelope["typeMeta"], **decoder(envelope.get("raw", b""))}
    except (LookupError, UnicodeDecodeError, ValueError) as error:
        raise statuses.bad_request(f"the body is not the protobuf it claims to be: {error!r}") from error
    return found
