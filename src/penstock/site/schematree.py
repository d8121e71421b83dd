"""Looks up keys, descriptions and patterns in the schema by their place in the file."""

from __future__ import annotations

import types
import typing
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from penstock.site import schema
from penstock.site.findings import Place


def inner(annotation: Any) -> tuple[str, Any]:
    """("model", M), ("map", value annotation), ("list", item annotation) or ("word", annotation)."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return inner(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
        return inner(kinds[0])
    if origin is dict:
        return "map", typing.get_args(annotation)[1]
    if origin is tuple:
        return "list", typing.get_args(annotation)[0]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "model", annotation
    return "word", annotation


def annotation_at(place: Place) -> Any:
    """The annotation of a place in the file; None if the schema has no such place."""
    current: Any = schema.Site
    for part in place:
        kind, what = inner(current)
        if kind == "model" and part in what.model_fields:
            current = what.model_fields[str(part)].annotation
        elif kind in ("map", "list"):
            current = what
        else:
            return None
    return current


def keys_at(place: Place) -> tuple[str, ...]:
    """Keys that the mapping at this place may have; empty if any key is allowed."""
    kind, what = inner(annotation_at(place))
    return tuple(what.model_fields) if kind == "model" else ()


def field_at(place: Place) -> FieldInfo | None:
    kind, what = inner(annotation_at(place[:-1]))
    if kind != "model" or not place:
        return None
    fields: dict[str, FieldInfo] = what.model_fields
    return fields.get(str(place[-1]))


def pattern_at(place: Place) -> str:
    """The pattern of a scalar at this place; empty if any text is allowed."""
    about = field_at(place)
    found = patterns(about.annotation, about.metadata) if about else patterns(annotation_at(place))
    return next(iter(found), "")


def patterns(annotation: Any, metadata: typing.Iterable[Any] = ()) -> list[str]:
    """Patterns in the metadata and in the annotation with its arguments."""
    nested = [pattern for each in typing.get_args(annotation) for pattern in patterns(each)]
    return _patterns_in(metadata) + _patterns_in(getattr(annotation, "__metadata__", ())) + nested


def _patterns_in(metadata: typing.Iterable[Any]) -> list[str]:
    found = []
    for each in metadata:
        parts = each.metadata if isinstance(each, FieldInfo) else (each,)
        found += [str(part.pattern) for part in parts if getattr(part, "pattern", None)]
    return found
