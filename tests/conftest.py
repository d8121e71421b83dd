"""What holds for all tests: one lab for the end-to-end and conformance tests of a process, since starting one
costs more than most of them do; and properties that fail by what they find, not by how busy the machine is.
"""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from penstock.lab import testing

pytest_plugins = ("tests.scheduling",)
hypothesis.settings.register_profile("penstock", deadline=None)
hypothesis.settings.load_profile("penstock")


@pytest.fixture(scope="session")
def shared_lab() -> Iterator[testing.RunningLab]:
    """Slurm, a cluster with four nodes, penstockd and hooks; taken down whatever happens."""
    reason = testing.missing()
    if reason:
        pytest.skip(reason)
    with testing.temporary_lab() as running:
        yield running
