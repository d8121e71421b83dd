"""Writes manifests as YAML, as far as JSON data needs it.

Strings are quoted as in JSON unless they are plain words, so no reader takes `1:30:00`, `no` or `0x10` for
something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9/._-]*")
_NOT_ASCII = re.compile(r"[^\x20-\x7e]")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def documents(objects: Iterable[Any]) -> str:
    return "---\n".join(f"{document(item)}\n" for item in objects)


def document(value: Any) -> str:
    """One document, without a final line break."""
    return "\n".join(_lines(value))


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        return [line for key, item in value.items() for line in _entry(f"{_scalar(key)}:", item)]
    if isinstance(value, list | tuple) and value:
        return [line for item in value for line in _item(item)]
    return [_scalar(value)]


def _entry(head: str, value: Any) -> list[str]:
    if isinstance(value, dict | list | tuple) and value:
        return [head, *(f"  {line}" for line in _lines(value))]
    return [f"{head} {_scalar(value)}"]


def _item(value: Any) -> list[str]:
    first, *rest = _lines(value)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, tuple):
        return "[]"
    if isinstance(value, str):
        return _NOT_ASCII.sub(_escaped, json.dumps(value, ensure_ascii=False))
    return json.dumps(value)


def _escaped(match: re.Match[str]) -> str:
    """YAML has one escape for a character that JSON writes as a surrogate pair, and rejects half pairs."""
    number = ord(match[0])
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
