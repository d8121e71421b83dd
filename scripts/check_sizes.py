"""No source file over 400 lines, no function over 60: longer ones have more than one reason to change."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE = 400
MAX_FUNCTION = 60
SUFFIXES = {".py", ".lua", ".sh"}


def too_long() -> Iterator[str]:
    for folder in ("src", "lab/src", "scripts", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield from check(path)


def check(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT)
    lines = text.count("\n")
    if lines > MAX_FILE:
        yield f"{name}: {lines} lines, at most {MAX_FILE}"
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION:
                    yield f"{name}:{node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION}"


def main() -> None:
    found = list(too_long())
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
