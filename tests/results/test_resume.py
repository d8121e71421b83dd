"""The collector is stopped at every step; after a restart nothing is lost or mixed up."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.nas import asuser
from penstock.results import checksums
from tests.results import stage as staging
from tests.results.stage import Stage

STEPS = ("mkdir", "rename", "replace", "link", "unlink", "rmdir", "chown", "symlink", "chmod")


class Stopped(BaseException):
    """Like a kill: nothing catches it."""


class Saboteur:
    """Stops the program before its n-th step."""

    def __init__(self, at: int) -> None:
        self.left = at

    def wrap(self, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def taking(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left <= 0:
                raise Stopped  # what is dead takes no further step either, not even to tidy up
            return step(*arguments, **options)

        return taking


def directly(user: asuser.User, function: Callable[[], Any], *, type: Any, timeout: float) -> Any:  # noqa: A002  # as the original
    """Run in this process, where the saboteur works."""
    return function()


def setup(base: Path) -> tuple[Stage, list[Any]]:
    """A requeued job with both kinds of outputs, one a link, in both attempts."""
    stage = staging.make(base)
    made = []
    for restart in (0, 1):
        attempt = stage.attempt(
            restart=restart, outputs=("data",), stdout=f"{base}/home/out-{restart}".encode()
        )
        stage.file(f"out-{restart}", f"attempt {restart}\n")
        made.append(attempt)
    stage.file("data/a.csv", "a")
    stage.file("data/b.csv", "b")
    for attempt in made:
        folder = stage.output_folder(attempt, model=f"model {attempt.restart}")
        (folder / "link").symlink_to("model")
        folder.chmod(0o555)  # as a careful owner leaves it
    return stage, made


def owner_at_work(stage: Stage) -> Callable[[Path], bytes]:
    """Replaces checksums.of_folder: the owner writes to the first attempt's folder at the last moment."""
    original, notes = checksums.of_folder, stage.results / "17" / "notes"

    def of_folder(folder: Path) -> bytes:
        if notes.parent.exists() and not notes.exists():
            notes.write_text("hours of work")
        return original(folder)

    return of_folder


def check(stage: Stage) -> None:
    folder = stage.results / "17"
    assert stage.names() == ["17"]
    for place, unlisted in ((folder, "attempt-0/notes"), (folder / "attempt-0", "notes")):
        verdict = checksums.verify(place)
        assert (verdict.changed, verdict.missing) == ((), ())
        assert set(verdict.unlisted) <= {unlisted}
    assert [str(path.relative_to(folder)) for path in folder.rglob("notes*")] == ["attempt-0/notes"]
    for restart, where in ((0, folder / "attempt-0"), (1, folder)):
        assert (where / "stdout.log").read_text() == f"attempt {restart}\n"
        outputs = sorted(str(path.relative_to(where)) for path in (where / "outputs").rglob("*"))
        assert outputs == [
            "outputs/data",
            "outputs/data/a.csv",
            "outputs/data/b.csv",
            "outputs/link",
            "outputs/model",
        ]
        assert (where / "outputs" / "model").read_text() == f"model {restart}"
    assert list((stage.results / ".outputs").iterdir()) == []
    assert list((stage.settings.state / "ended").iterdir()) == []


def run(stage: Stage, made: list[Any]) -> None:
    for attempt in made:
        path = stage.settings.state / "ended" / attempt.name
        if path.exists():
            assert stage.collect(attempt)


def test_collection_resumes_after_stop_at_any_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result equals that of an undisturbed run."""
    monkeypatch.setattr(asuser, "run_as", directly)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for at in itertools.count(1):
        with tempfile.TemporaryDirectory(prefix="penstock-resuming-") as place:
            stage, made = setup(Path(place))
            for attempt in made:
                stage.leave(attempt)
            saboteur = Saboteur(at)
            with monkeypatch.context() as outer:
                outer.setattr(checksums, "of_folder", owner_at_work(stage))
                with monkeypatch.context() as patch, contextlib.suppress(Stopped):
                    for name in STEPS:
                        patch.setattr(os, name, saboteur.wrap(getattr(os, name)))
                    run(stage, made)
                run(stage, made)
            check(stage)
        if saboteur.left > 0:
            break
    assert at > 50
