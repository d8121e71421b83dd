"""A stage for every test, in folders that all users can enter, as on a NAS."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.results import stage as staging


@pytest.fixture
def stage() -> Iterator[staging.Stage]:
    with tempfile.TemporaryDirectory(prefix="penstock-results-") as base:
        yield staging.make(Path(base))
