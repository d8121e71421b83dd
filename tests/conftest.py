"""What holds for all tests: one lab for the end-to-end and conformance tests of a process, since starting one
costs more than most of them do; and properties that fail by what they find, not by how busy the machine is.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from penstock_lab import spec, testing
from tests.e2e import labs

pytest_plugins = ("tests.scheduling", "tests.programs")

os.umask(0o022)  # As the commands do that make labs: several users meet in what the tests make.
for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(ignored) is signal.SIG_IGN:  # under nohup or in the background of a script
        signal.signal(ignored, signal.default_int_handler if ignored == signal.SIGINT else signal.SIG_DFL)

EXPLORING = "PENSTOCK_TEST_EXPLORE"
"""How many examples of each property `make fuzz` tries, others every time. Without it they are the same each
time, so that a run of the tests tells of the change and not of luck.
"""
hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
hypothesis.settings.register_profile(
    "exploring", deadline=None, max_examples=int(os.environ.get(EXPLORING) or 1), print_blob=True
)
hypothesis.settings.load_profile("exploring" if os.environ.get(EXPLORING) else "same")


@pytest.fixture(scope="session")
def shared_lab(request: pytest.FixtureRequest) -> Iterator[testing.RunningLab]:
    """Slurm, a cluster with four nodes, penstockd and hooks; taken down whatever happens.

    A real cluster is dear: where a stormy lab has one already it is that lab, without a fault.
    """
    reason = testing.missing()
    if reason:
        pytest.skip(reason)
    stormy = request.config.stash.get(labs.STORMY, None)
    if stormy and testing.kubernetes() == spec.REAL:
        yield stormy
    else:
        with labs.kept_for_all(request.config) as running:
            yield running


@pytest.fixture(scope="module", autouse=True)
def _no_pod_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Also not by tests that meant to make them for a moment only."""
    yield
    labs.leave_no_pod(request.config)
