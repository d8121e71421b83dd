"""Which files a #K8S_OUTPUTS pattern matches."""

from __future__ import annotations

import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from penstock.results import globs


def tree(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.csv", {"a.csv", "b c.csv"}),
        ("./*.csv", {"a.csv", "b c.csv"}),
        ("d/*.csv", {"d/a.csv"}),
        ("d//a.csv", {"d/a.csv"}),
        ("*/a.csv", {"d/a.csv", "l/a.csv"}),
        ("**/a.csv", {"a.csv", "d/a.csv", "d/e/a.csv"}),
        ("d/**", {"d/a.csv", "d/e", "d/e/a.csv"}),
        ("?.csv", {"a.csv"}),
        ("[ab]*.csv", {"a.csv", "b c.csv"}),
        ("[!a]*.csv", {"b c.csv"}),
        (".h*", {".hidden.csv"}),
        ("d", {"d"}),
        ("nothing", set()),
        ("../*", set()),
        ("d/../a.csv", set()),
        ("", set()),
        ("[", {"["}),
        ("a.csv/x", set()),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, found: set[str]) -> None:
    """As in a shell, and `**`, which follows no links."""
    tree(tmp_path, "a.csv", "b c.csv", ".hidden.csv", "d/a.csv", "d/e/a.csv", "[")
    (tmp_path / "l").symlink_to("d")
    assert set(globs.matches(str(tmp_path), pattern)) == found


PARTS = strategies.sampled_from(["*", "**", "a", "b", "?", "[ab]", "a*", ".*", ".", "**/**"])


@hypothesis.settings(max_examples=150, deadline=None, derandomize=True)
@hypothesis.given(
    strategies.lists(PARTS, min_size=1, max_size=4),
    strategies.sets(
        strategies.sampled_from(["a", "b", "ab", "c/a", "c/b/a", "a2/b", ".x", ".y/a", "c/.z"]), max_size=6
    ),
)
def test_patterns_match_like_pathlib(parts: list[str], names: set[str]) -> None:
    """For plain names without links, except hidden names."""
    pattern = "/".join(parts)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for name in names:
            if not (root / name).exists():
                tree(root, name)
        found = set(globs.matches(place, pattern))
        assert all((root / name).exists() for name in found)
        if any(part.startswith(".") for part in parts):
            return
        if parts[-1].endswith("**"):
            pattern += "/*"
        expected = {str(path.relative_to(root)) for path in root.glob(pattern)}
        assert found == {
            name for name in expected if not any(part.startswith(".") for part in name.split("/"))
        }


def test_link_loops_end(tmp_path: Path) -> None:
    """`**` does not follow links."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "again").symlink_to("..")
    tree(tmp_path, "a/x")
    assert set(globs.matches(str(tmp_path), "**/x")) == {"a/x"}
