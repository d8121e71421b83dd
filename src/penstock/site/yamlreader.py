"""Reads YAML into plain data, with the line and column of every key and value.

Stricter than YAML: no anchors or aliases (a few lines can expand to gigabytes), no tags, no directives, no
duplicate keys, keys are plain words, one document, limited size and depth. Plain scalars are text except for
null, true, false and decimal numbers: `1:30:00` stays a time, and `no` a word.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

from ruamel.yaml import YAML, events, nodes
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from penstock.site.findings import Finding, Place, dotted

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 24
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?[0-9]+\.[0-9]+([eE][-+]?[0-9]{1,3})?")
_WORDS: Final = {"null": None, "~": None, "": None, "true": True, "false": False}


class Unreadable(Exception):
    """The text cannot be parsed at all."""

    def __init__(self, line: int, column: int, message: str, remedy: str) -> None:
        super().__init__(message)
        self.finding = Finding(line=line, column=column, key="", message=message, remedy=remedy)


@dataclasses.dataclass
class Document:
    """The data, the position of each key and value, and mistakes found while reading."""

    data: Any = None
    places: dict[Place, tuple[int, int]] = dataclasses.field(default_factory=dict)
    findings: list[Finding] = dataclasses.field(default_factory=list)

    def at(self, place: Place) -> tuple[int, int]:
        """Line and column of the place, or of the closest mapping or list around it."""
        for length in range(len(place), -1, -1):
            if place[:length] in self.places:
                return self.places[place[:length]]
        return 1, 1

    def find(self, place: Place, message: str, remedy: str) -> Finding:
        line, column = self.at(place)
        return Finding(line=line, column=column, key=dotted(place), message=message, remedy=remedy)


def read(content: bytes) -> Document:
    """Parse the document. Raises Unreadable if it cannot be parsed."""
    if len(content) > MAX_BYTES:
        raise Unreadable(1, 1, f"more than {MAX_BYTES} bytes", "is this a site file?")
    text = _decoded(content)
    _refuse_control_characters(text)
    try:
        _require_plain(text)
        root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        raise _not_yaml(error, text) from error
    except (YAMLError, ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise Unreadable(1, 1, f"not YAML: {reason}", "write plain YAML") from error
    if root is None:
        raise Unreadable(1, 1, "the file is empty", "`penstock init` writes a first one")
    document = Document()
    document.places[()] = _position(root.start_mark)
    document.data = _value(root, (), document)
    return document


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        column = len(before.rpartition(b"\n")[2]) + 1
        found = f"byte 0x{content[error.start]:02x} is not UTF-8"
        raise Unreadable(before.count(b"\n") + 1, column, found, "save the file as UTF-8") from error


def _refuse_control_characters(text: str) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        indent = line[: len(line) - len(line.lstrip())]
        if "\t" in indent:
            raise Unreadable(number, indent.index("\t") + 1, "indented with a tab", "indent with spaces")
        for column, character in enumerate(line, 1):
            if ord(character) < 32 and character not in "\t\r":
                raise Unreadable(number, column, f"control character 0x{ord(character):02x}", "remove it")


def _require_plain(text: str) -> None:
    """Refuse anchors, aliases, tags, directives, second documents and deep nesting."""
    depth = documents = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        complaint = _complaint(event)
        if isinstance(event, events.DocumentStartEvent):
            documents += 1
            if documents > 1 or event.version or event.tags:
                complaint = "a directive or a second document", "keep one document, without % lines"
        depth += isinstance(event, events.CollectionStartEvent)
        depth -= isinstance(event, events.CollectionEndEvent)
        if depth > MAX_DEPTH:
            complaint = f"more than {MAX_DEPTH} levels", "a site file has at most 6: close the brackets"
        if complaint:
            raise Unreadable(*_position(event.start_mark), *complaint)


def _complaint(event: Any) -> tuple[str, str] | None:
    anchor = getattr(event, "anchor", None)
    if isinstance(event, events.AliasEvent) or anchor:
        return f"anchor or alias `{anchor}`", "write it out: a site file has no aliases"
    tag = getattr(event, "tag", None)
    if tag is not None and str(tag) != "!":
        return f"tag `{tag}`", "remove it: values need no tags"
    return None


def _value(node: Any, place: Place, document: Document) -> Any:
    if isinstance(node, nodes.MappingNode):
        return _mapping(node, place, document)
    if not isinstance(node, nodes.SequenceNode):
        return _scalar(node)
    items = []
    for number, item in enumerate(node.value):
        document.places[(*place, number)] = _position(item.start_mark)
        items.append(_value(item, (*place, number), document))
    return tuple(items)


def _mapping(node: Any, place: Place, document: Document) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        here = _position(key_node.start_mark)
        is_word = isinstance(key_node, nodes.ScalarNode) and key_node.value != ""
        key = str(key_node.value) if is_word else "?"
        message, remedy = "a key that is not a word", "use a plain word"
        if is_word and key in found:
            first = document.places[(*place, key)][0]
            message, remedy = f"duplicate key `{key}`, first in line {first}", "keep one of them"
        elif is_word:
            document.places[(*place, key)] = here
            found[key] = _value(value_node, (*place, key), document)
            continue
        finding = Finding(
            line=here[0], column=here[1], key=dotted((*place, key)), message=message, remedy=remedy
        )
        document.findings.append(finding)
    return found


def _scalar(node: Any) -> Any:
    text = str(node.value)
    if node.style in ("'", '"', "|", ">"):
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _position(mark: Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


def _not_yaml(error: MarkedYAMLError, text: str) -> Unreadable:
    line, column = _position(error.problem_mark or error.context_mark)
    lines = text.split("\n")
    shown = lines[line - 1].strip()[:60] if line <= len(lines) else ""
    why = str(error.problem or error.context or "no YAML") + (f" at `{shown}`" if shown else "")
    return Unreadable(
        line, column, why, "check brackets, quotes, colons and the indentation here and in the line before"
    )
