"""Text from outside ends its lines with a line feed, and with nothing else.

Python's own way of breaking text into lines takes a dozen more characters for an end. Who can write one of
them into a name, a comment or a path would begin a line of his own in what we read.
"""

from __future__ import annotations

import ast
from pathlib import Path

import penstock
import penstock_lab

FORBIDDEN = "splitlines"


def test_text_is_split_at_line_feeds_only() -> None:
    """In every module: what is harmless today reads a user's text tomorrow."""
    found = {
        f"{path.name}:{node.lineno}"
        for package in (penstock, penstock_lab)
        for path in Path(package.__file__ or "").parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == FORBIDDEN
    }
    assert found == set(), 'use .split("\\n")'
