"""The documentation names files of this repository that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/reference/*.md")))
NAMED = re.compile(r"`([\w./-]+\.py)(?:::\w+)?`")
CHANGES = "CHANGELOG.md"
"""Tells of files as they were."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != CHANGES], ids=lambda page: page.name)
def test_every_module_a_page_names_exists(page: Path) -> None:
    """A renamed module would leave a reader of the page without a way on."""
    named = set(NAMED.findall(page.read_text(encoding="utf-8")))
    missing = {name for name in named if not is_there(name)}
    assert not missing


def is_there(name: str) -> bool:
    """Whether the file is at this path, or below a folder of sources."""
    folders = (ROOT / folder for folder in ("src", "lab", "tests", "scripts", "benchmarks"))
    return (ROOT / name).exists() or any(next(folder.rglob(name), None) for folder in folders)
