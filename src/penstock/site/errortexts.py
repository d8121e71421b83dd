"""Turns pydantic's errors into messages: what was found, what is allowed, the closest spelling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.sbatch import nearest
from penstock.site import schematree
from penstock.site.findings import Finding, Place
from penstock.site.scalars import FORMS
from penstock.site.yamlreader import Document

_KINDS: Final = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "string_type": "text (put it in quotes)",
    "bool_type": "true or false",
    "dict_type": "a mapping, `key: value` lines below it",
    "model_type": "a mapping, `key: value` lines below it",
    "model_attributes_type": "a mapping, `key: value` lines below it",
    "tuple_type": "a list, `- item` lines or [a, b]",
}
_BOUNDS: Final = {
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
}


def finding(problem: Mapping[str, Any], document: Document) -> Finding:
    place: Place = tuple(problem["loc"])
    message, remedy = _words(problem, place)
    return document.find(place[:-1] if problem["type"] == "missing" else place, message, remedy)


def _words(problem: Mapping[str, Any], place: Place) -> tuple[str, str]:
    kind, context = str(problem["type"]), problem.get("ctx") or {}
    if kind == "extra_forbidden":
        return f"unknown key `{place[-1]}`", _known_keys(place)
    if kind == "missing":
        about = schematree.field_at(place)
        return f"`{place[-1]}` is missing", f"add it: {about.description if about else ''}"
    found = f"found {shown(problem['input'])}"
    if kind == "literal_error":
        return found, _choices(str(problem["input"]), str(context["expected"]))
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return found, f"{words} {context[name]} is allowed"
    return found, _needed(kind, place, problem)


def _needed(kind: str, place: Place, problem: Mapping[str, Any]) -> str:
    if kind == "string_pattern_mismatch":
        pattern = problem["ctx"]["pattern"]
        return f"allowed: {FORMS.get(pattern, pattern)}"
    if kind in ("too_short", "too_long"):
        return "at least one entry is needed" if kind == "too_short" else "fewer entries are allowed"
    form = FORMS.get(schematree.pattern_at(place), "") if kind == "string_type" else ""
    return f"allowed: {form}" if form else f"expected: {_KINDS.get(kind, problem['msg'])}"


def _known_keys(place: Place) -> str:
    keys = schematree.keys_at(place[:-1])
    return f"{suggestion(str(place[-1]), keys)}allowed here: {', '.join(keys)}"


def _choices(found: str, expected: str) -> str:
    choices = [word.strip(" '") for word in expected.replace(" or ", ", ").split(",")]
    return f"{suggestion(found, choices)}allowed: {', '.join(choices)}"


def suggestion(word: str, candidates: Iterable[str]) -> str:
    """ "did you mean …?" with the closest candidate, or an empty string."""
    names = list(candidates)
    near = nearest.nearest(word.lower().replace("-", "_"), names) or nearest.nearest(word, names)
    return f"did you mean `{near}`? " if near else ""


def shown(value: Any) -> str:
    """A value of the file, shortened for an error message."""
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, tuple | list):
        return "a list" if value else "an empty list"
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, str) else str(value).lower()
    return text if len(text) <= 60 else f"{text[:57]}…"
