"""Generates the reference page and the JSON Schema from the schema."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from penstock.site import schema, schematree
from penstock.site.scalars import FORMS

HEAD = """\
# The site file

`/etc/penstock/site.yaml` (or `--site FILE`, or `$PENSTOCK_SITE`) describes the cluster once.
This page is generated from the schema by `scripts/make_reference.py`. Editors check the file against
[site.schema.json](site.schema.json) if this is its first line:

```yaml
# yaml-language-server: $schema=site.schema.json
```

Unknown keys, duplicate keys, anchors, aliases and tags are errors. `1:30:00` is a time, not a number.

"""


def json_schema() -> str:
    made = schema.Site.model_json_schema()
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    made["title"] = "Penstock site file"
    return json.dumps(made, indent=2) + "\n"


def markdown() -> str:
    return HEAD + "\n".join(_section("", schema.Site)) + "\n"


def _section(place: str, model: type[BaseModel]) -> Iterator[str]:
    """A table for a mapping, followed by one for each nested mapping."""
    yield f"## {f'`{place}`' if place else 'Top level'}\n"
    if model.__doc__:
        yield f"{model.__doc__.strip()}\n"
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    nested: list[tuple[str, type[BaseModel]]] = []
    for name, field in model.model_fields.items():
        kind, what = schematree.inner(field.annotation)
        yield f"| `{name}` | {_kind(field)} | {_default(field)} | {field.description} |"
        inside = _model_in(kind, what)
        if inside is not None:
            mark = {"map": ".NAME", "list": "[]"}.get(kind, "")
            nested.append((f"{place}.{name}{mark}".lstrip("."), inside))
    yield ""
    for where, inside in nested:
        yield from _section(where, inside)


def _model_in(kind: str, what: Any) -> type[BaseModel] | None:
    if kind in ("map", "list"):
        kind, what = schematree.inner(what)
    found: type[BaseModel] | None = what if kind == "model" else None
    return found


def _kind(field: FieldInfo) -> str:
    kind, what = schematree.inner(field.annotation)
    if kind == "list":
        return f"list of {_word(what, ())}"
    if kind == "map":
        return "mapping by name"
    return "mapping" if kind == "model" else _word(field.annotation, field.metadata)


def _word(annotation: Any, metadata: Any) -> str:
    choices = _choices(annotation)
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    found = schematree.patterns(annotation, metadata)
    if found:
        return FORMS[found[0]].replace("|", "\\|")
    kind = schematree.inner(annotation)[1]
    names = {int: "whole number", bool: "`true` or `false`", str: "text"}
    return names.get(kind, "mapping") if isinstance(kind, type) else "text"


def _choices(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) is typing.Literal:
        return typing.get_args(annotation)
    for each in typing.get_args(annotation):
        found = _choices(each)
        if found:
            return found
    return ()


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "**required**"
    if value is None or value in ({}, (), "") or isinstance(value, BaseModel):
        return ""
    text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"`{text.lower() if isinstance(value, bool) else text}`"
