"""Copies: atomic, bounded, never of links or devices; and comparing files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.results import filecopy


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("", "", True),
        ("x" * (3 << 20), "x" * (3 << 20), True),
        ("x" * (3 << 20), "x" * ((3 << 20) - 1) + "y", False),
        ("x", "xx", False),
    ],
)
def test_files_are_compared_by_content(tmp_path: Path, ours: str, theirs: str, same: bool) -> None:
    """To the last byte, also over several reads."""
    for name, content in (("a", ours), ("b", theirs)):
        (tmp_path / name).write_text(content)
        os.utime(tmp_path / name, (1000, 1000))
    assert filecopy.is_same(tmp_path / "a", tmp_path / "b") is same
    os.utime(tmp_path / "b", (1002, 1002))
    assert not filecopy.is_same(tmp_path / "a", tmp_path / "b")


def test_copy_respects_limit(tmp_path: Path) -> None:
    """And returns the number of bytes left out."""
    (tmp_path / "log").write_text("0123456789")
    assert filecopy.copy(tmp_path / "log", tmp_path / "copy", at_most=4) == 6
    assert (tmp_path / "copy").read_text() == "0123"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    """Nothing blocks, nothing is followed."""
    path = tmp_path / "x"
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path = Path("/dev/zero")
    with pytest.raises(filecopy.NotAFile):
        filecopy.open_file(path)


def test_failed_copy_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No truncated file."""
    (tmp_path / "a").write_text("x")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        filecopy.copy(tmp_path / "a", tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
