"""The lab that end-to-end and conformance tests of a process share: starting one costs more than most do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.lab import testing


@pytest.fixture(scope="session")
def shared_lab() -> Iterator[testing.RunningLab]:
    """Slurm, a cluster with four nodes, penstockd and hooks; taken down whatever happens."""
    reason = testing.missing()
    if reason:
        pytest.skip(reason)
    with testing.temporary_lab() as running:
        yield running
