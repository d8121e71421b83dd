"""Damaged records on disk are read as written or reported as errors."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock import errors
from penstock.audit import history
from penstock.install import inventory, transactions
from penstock.journal import database
from penstock.model import attempts as model
from tests.unit.test_attempts import world_in

TEXT = some.text(some.characters(codec="utf-8"), max_size=10)
NUMBER = some.integers(0, 2**31)
ENDS = some.builds(
    model.End,
    at=NUMBER.map(float),
    exit_code=NUMBER,
    signal=NUMBER,
    reason=TEXT,
    requeue=some.booleans(),
)
ATTEMPTS = some.builds(
    model.Attempt,
    job_id=NUMBER,
    restart=NUMBER,
    uid=NUMBER,
    token=TEXT,
    launched=NUMBER.map(float),
    partition=TEXT,
    workdir=some.binary(max_size=10),
    stdout=some.binary(max_size=10),
    stderr=some.binary(max_size=10),
    end=some.none() | ENDS,
)


@some.composite
def damaged(draw: some.DrawFn) -> bytes:
    """A truncated, changed or empty record."""
    content = msgspec.json.encode(draw(ATTEMPTS))
    at = draw(some.integers(0, len(content)))
    return content[:at] + draw(some.binary(max_size=5)) + content[at + draw(some.integers(0, 9)) :]


@given(ATTEMPTS)
def test_attempt_round_trip(attempt: model.Attempt) -> None:
    """Paths are arbitrary bytes."""
    assert msgspec.json.decode(msgspec.json.encode(attempt), type=model.Attempt) == attempt


@given(damaged(), ATTEMPTS)
def test_penstockd_starts_with_a_damaged_attempt(content: bytes, other: model.Attempt) -> None:
    """The other attempts are read."""
    with tempfile.TemporaryDirectory() as state:
        running = Path(state) / "running"
        running.mkdir()
        (running / "1-0.json").write_bytes(content)
        (running / "2-0.json").write_bytes(msgspec.json.encode(other))
        known = world_in(Path(state)).bridge.attempts.under_way()
    assert (other.job_id, other.restart) in {(one.job_id, one.restart) for one in known}


@given(some.binary(max_size=200) | damaged())
def test_a_damaged_journal_of_an_installation_is_an_error(content: bytes) -> None:
    """Nothing is undone by a damaged plan."""
    with tempfile.TemporaryDirectory() as folder:
        store = inventory.Store(Path(folder))
        store.journal_path.write_bytes(content)
        before = sorted(Path(folder).iterdir())
        with contextlib.suppress(errors.InstallError):
            transactions.Transaction(store, objects=None, restart=never).recover()
            raise AssertionError("a journal was made of nonsense")
        assert sorted(Path(folder).iterdir()) == before


def never(*words: object, **named: object) -> None:
    raise AssertionError("something was done")


@given(some.binary(min_size=600, max_size=1200))
def test_damaged_intake_journal_is_an_error(content: bytes) -> None:
    """Neither SQLite's exception nor an empty journal in its place."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        path.write_bytes(content)
        with pytest.raises(errors.JournalError):
            database.connect(path)


@given(some.lists(TEXT.filter(lambda text: not text.endswith("}")), max_size=5))
def test_truncated_lines_of_a_watch_are_skipped(lines: list[str]) -> None:
    assert list(history.events(lines)) == []
