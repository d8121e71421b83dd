"""A temporary error of the storage never counts as "does not exist"."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable
from typing import Any

import pytest

from penstock.results import filecopy
from tests.results import stage as staging
from tests.results.stage import Stage

PASSING = [errno.EIO, errno.ESTALE, errno.ETIMEDOUT]


def broken(
    original: Callable[..., Any], number: int, end: str, *, times: float = math.inf
) -> Callable[..., Any]:
    """The same function, which first fails a few times for paths with this ending."""
    left = [times]

    def call(path: Any, *arguments: Any, **options: Any) -> Any:
        if left[0] and isinstance(path, str | os.PathLike) and os.fspath(path).rstrip("/").endswith(end):
            left[0] -= 1
            raise OSError(number, os.strerror(number), os.fspath(path))
        return original(path, *arguments, **options)

    return call


@pytest.mark.parametrize("number", PASSING)
@pytest.mark.parametrize(
    ("pattern", "what", "end"),
    [
        ("data/*.csv", "scandir", "/home/data"),
        ("**/*.csv", "scandir", "/home/data"),
        ("data/a.csv", "lstat", "/data/a.csv"),
        ("data/a.csv", "stat", "/home/data"),
    ],
)
def test_error_on_output_folder_is_retried(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, pattern: str, what: str, end: str, number: int
) -> None:
    """The folder is not empty because the server did not answer."""
    attempt = stage.attempt(outputs=(pattern,))
    stage.file("data/a.csv")
    with monkeypatch.context() as patch:
        patch.setattr(os, what, broken(getattr(os, what), number, end))
        assert not stage.collect(attempt)
    assert stage.summary().problem == os.strerror(number)
    assert stage.collect(attempt)
    assert (stage.results / "17" / "outputs" / "data" / "a.csv").exists()
    assert staging.sha256sum(stage.results / "17") == ""


@pytest.mark.parametrize("number", PASSING)
def test_error_on_partial_folder_is_retried(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It already has this attempt's outputs: a new one would be complete without them."""
    attempt = stage.attempt()
    stage.output_folder(attempt, model="precious")
    with monkeypatch.context() as patch:
        patch.setattr(filecopy, "copy", staging.full)
        assert not stage.collect(attempt)
    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", broken(os.lstat, number, "/results/17", times=1))
        assert not stage.collect(attempt)
    assert stage.collect(attempt)
    assert stage.names() == ["17"]
    assert (stage.results / "17" / "outputs" / "model").read_text() == "precious"


@pytest.mark.parametrize("number", PASSING)
def test_error_on_folder_of_other_job_is_retried(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A job that had the same id is no earlier attempt, whatever the server answers."""
    assert stage.collect(stage.attempt(out="of another job\n", submission="1"))
    attempt = stage.attempt(submission="2", token="f" * 32)
    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", broken(os.lstat, number, "/results/17", times=1))
        stage.collect(attempt)
    assert (stage.settings.state / "ended" / attempt.name).exists()
    assert stage.collect(attempt)
    assert stage.names() == ["17", "17.1"]
    assert not list((stage.results / "17").glob("attempt-*"))


def test_error_on_existing_output_overwrites_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a file of the working directory with the same name."""
    attempt = stage.attempt(outputs=("a.csv",))
    stage.output_folder(attempt, **{"a.csv": "from the output folder"})
    stage.file("a.csv", "from the working directory")
    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", broken(os.lstat, errno.EIO, "/outputs/a.csv"))
        assert not stage.collect(attempt)
    assert stage.collect(attempt)
    folder = stage.results / "17" / "outputs"
    assert (folder / "a.csv").read_text() == "from the output folder"
    assert (folder / "a.csv.2").read_text() == "from the working directory"
