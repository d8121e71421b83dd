"""checksums.txt can be read by the real `sha256sum`, whatever the names."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from penstock.results import checksums

NAMES = strategies.binary(min_size=1, max_size=40).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)
NASTY = [
    b"a b",
    b"new\nline",
    b"back\\slash",
    b"\\n",
    b"cr\r",
    b"\r",
    b"-c",
    b" lead",
    b"*x",
    b"\xff\xfe",
    b"a\\\n\r",
]


def sha256sum(folder: Path) -> subprocess.CompletedProcess[bytes]:
    argv = ["sha256sum", "--check", "--strict", "--quiet", checksums.NAME]
    return subprocess.run(argv, cwd=folder, capture_output=True, timeout=60, check=False)


def fill(folder: Path, names: list[bytes]) -> None:
    for name in names:
        (folder / os.fsdecode(name)).write_bytes(b"content of " + name)
    (folder / checksums.NAME).write_bytes(checksums.of_folder(folder))


@pytest.mark.parametrize("name", NASTY)
def test_sha256sum_accepts_special_names(tmp_path: Path, name: bytes) -> None:
    """Blanks, line breaks, backslashes, invalid UTF-8."""
    fill(tmp_path, [name])
    result = sha256sum(tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


@hypothesis.settings(max_examples=40, deadline=None, derandomize=True)
@hypothesis.given(strategies.sets(NAMES, min_size=1, max_size=6))
def test_sha256sum_accepts_any_names(names: set[bytes]) -> None:
    """And notices when one file changes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        names -= {checksums.NAME.encode()}
        fill(folder, sorted(names))
        assert sha256sum(folder).returncode == 0
        assert checksums.verify(folder) == checksums.Verdict(good=len(names))
        for name in list(names)[:1]:
            (folder / os.fsdecode(name)).write_bytes(b"other")
            assert sha256sum(folder).returncode == 1
            assert len(checksums.verify(folder).changed) == 1


@hypothesis.settings(deadline=None, derandomize=True)
@hypothesis.given(strategies.dictionaries(NAMES, strategies.just("ab" * 32), max_size=5))
def test_lines_are_parsed_back(entries: dict[bytes, str]) -> None:
    """No name is lost or mistaken for another."""
    text = b"".join(checksums.line(digest, name) for name, digest in entries.items())
    assert checksums.parse(text) == entries


@hypothesis.given(strategies.binary(max_size=200))
def test_parser_accepts_any_text(text: bytes) -> None:
    """The file belongs to the user by then; a parsed value is a digest or nothing."""
    assert all(len(digest) == 64 for digest in checksums.parse(text).values())


def test_verify_reports_changed_missing_and_unlisted(tmp_path: Path) -> None:
    """Also in subfolders."""
    (tmp_path / "sub").mkdir()
    fill(tmp_path, [b"a", b"b", b"sub/c"])
    (tmp_path / "a").write_text("changed")
    (tmp_path / "b").unlink()
    (tmp_path / "sub" / "d").write_text("new")
    found = checksums.verify(tmp_path)
    assert found == checksums.Verdict(good=1, changed=("a",), missing=("b",), unlisted=("sub/d",))
    assert not found.is_clean


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Neither to files nor to folders, and a FIFO does not block."""
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    assert checksums.of_folder(tmp_path) == b""
    with pytest.raises(OSError, match="no longer a regular file"):
        checksums.digest_of(os.fsencode(tmp_path / "pipe"))
