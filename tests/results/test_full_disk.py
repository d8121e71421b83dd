"""A results folder on a full disk, and on one that fills up during a write."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.results import stage as staging
from tests.results.stage import Stage

ROOM = 1 << 20


@pytest.fixture
def small(stage: Stage) -> Iterator[Stage]:
    """The results on a file system of 1 MiB."""
    if not staging.IS_ROOT:
        pytest.skip("only root can mount")
    argv = ["mount", "-t", "tmpfs", "-o", f"size={ROOM},mode=755", "tmpfs", str(stage.results)]
    result = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    if result.returncode:
        pytest.skip(f"no mount here: {result.stderr}")
    try:
        yield stage
    finally:
        subprocess.run(["umount", str(stage.results)], check=True, timeout=60)


def fill(folder: Path, *, leave: int) -> Path:
    path = folder / "ballast"
    path.write_bytes(b"x" * (ROOM - leave))
    return path


def fill_up(folder: Path) -> Path:
    """To the last byte."""
    path = folder / "ballast"
    with path.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(b"x" * 4096)
    return path


@pytest.mark.parametrize("leave", [16 << 10, 64 << 10, 200 << 10])
def test_results_are_completed_when_there_is_space(small: Stage, leave: int) -> None:
    """Whatever space was left: what exists is marked incomplete until all is collected."""
    attempt = small.attempt(out="x" * 300_000, outputs=("*.csv",))
    small.file("a.csv", "y" * 100_000)
    small.output_folder(attempt, model="precious")
    ballast = fill(small.results, leave=leave)
    for _ in range(2):
        try:
            assert not small.collect(attempt)
        except OSError as error:
            assert error.errno == 28  # noqa: PT017  # either is right: it depends on which step met the wall
        assert not (small.results / "17" / "checksums.txt").exists()
        assert (small.settings.state / "ended" / attempt.name).exists()
    ballast.unlink()
    assert small.collect(attempt)
    folder = small.results / "17"
    assert (staging.sha256sum(folder), staging.uncovered(folder)) == ("", set())
    assert (folder / "stdout.log").stat().st_size == 300_000
    assert (folder / "outputs" / "model").read_text() == "precious"
    assert (folder / "outputs" / "a.csv").stat().st_size == 100_000
    assert small.names() == ["17"]


def test_folder_without_summary_is_recognised(small: Stage) -> None:
    """Outputs were moved in, but no summary could be written beside them."""
    assert small.collect(small.attempt(5))
    attempt = small.attempt(out="")
    small.output_folder(attempt, model="precious")
    ballast = fill_up(small.results)
    for _ in range(3):
        assert not small.collect(attempt)
        assert not (small.results / "17").exists()
    ballast.unlink()
    assert small.collect(attempt)
    assert small.names() == ["17", "5"]
    assert (small.summary().outputs.files, small.summary().complete) == (1, True)
    assert (small.results / "17" / "outputs" / "model").read_text() == "precious"
    assert staging.sha256sum(small.results / "17") == ""


def test_full_storage_without_mark_is_reported(small: Stage) -> None:
    """Full to the last byte from the start."""
    fill(small.results, leave=0)
    attempt = small.attempt()
    with pytest.raises(Exception, match="No space left"):
        small.collect(attempt)
    assert (small.settings.state / "ended" / attempt.name).exists()
