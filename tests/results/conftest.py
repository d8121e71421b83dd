"""A stage for every test; its folders can be passed by all users, as a NAS can."""

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
