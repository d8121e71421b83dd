"""Label and field selectors: text to a predicate over objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.devcluster import statuses

Labels = Mapping[str, str]
Predicate = Callable[[Mapping[str, Any]], bool]
_SET: Final = re.compile(r"\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUAL: Final = re.compile(r"\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*")
_EXISTS: Final = re.compile(r"\s*(!?)\s*([^\s!=,()]+)\s*")


def _terms(text: str) -> list[str]:
    """Split at commas that are not inside parentheses."""
    return [term for term in re.split(r",(?![^()]*\))", text) if term.strip()]


def _label_term(term: str) -> Callable[[Labels], bool]:
    if match := _SET.fullmatch(term):
        key, values = match[1], {value.strip() for value in match[3].split(",")}
        if match[2] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUAL.fullmatch(term):
        key, wanted = match[1], match[3]
        if match[2] == "!=":
            return lambda labels: labels.get(key) != wanted
        return lambda labels: labels.get(key) == wanted
    if match := _EXISTS.fullmatch(term):
        key, wanted_there = match[2], not match[1]
        return lambda labels: (key in labels) == wanted_there
    raise statuses.bad_request(f"unable to parse requirement: {term!r}")


def by_labels(text: str) -> Predicate:
    tests = [_label_term(term) for term in _terms(text)]

    def matches(obj: Mapping[str, Any]) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(test(labels) for test in tests)

    return matches


def _field(obj: Mapping[str, Any], path: list[str]) -> str:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _field_term(term: str) -> Predicate:
    match = _EQUAL.fullmatch(term)
    if match is None:
        raise statuses.bad_request(f"invalid selector: {term!r}; can't understand it")
    path, wanted, equal = match[1].split("."), match[3], match[2] != "!="
    return lambda obj: (_field(obj, path) == wanted) == equal


def by_fields(text: str) -> Predicate:
    """Any field may be named here; a real server knows only a few of each kind."""
    tests = [_field_term(term) for term in _terms(text)]
    return lambda obj: all(test(obj) for test in tests)


def both(labels: str, fields: str) -> Predicate | None:
    """One predicate for both selectors of a request, or None when everything matches."""
    tests = [by_labels(labels)] if labels else []
    tests += [by_fields(fields)] if fields else []
    if not tests:
        return None
    return lambda obj: all(test(obj) for test in tests)
