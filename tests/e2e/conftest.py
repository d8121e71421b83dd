"""Labs for the end-to-end tests: one for the whole session, always taken down."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from tests.e2e import labs

from penstock_lab import paths, spec, testing
from penstock_lab.faultproxy import controlsocket

FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session", autouse=True)
def _lab_possible() -> None:
    """Skip all tests, with the reason, if no lab can be made."""
    reason = testing.missing()
    if reason:
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def _faults_are_the_dev_clusters(request: pytest.FixtureRequest) -> None:
    """Tests with simulated faults need the dev cluster; real outages are in tests/conformance."""
    if "faults" in request.fixturenames and testing.kubernetes() != spec.DEV:
        pytest.skip("only the dev cluster has faults on demand")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """No invariant check after a failed test."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture(autouse=True)
def _both_worlds_agree(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every passed test on the shared lab ends with a check of the invariants.

    The jobs of a failed one are cancelled: the next test would wait for their room.
    """
    yield
    if "lab" not in request.fixturenames or FAILED not in request.node.stash:
        return
    running: testing.RunningLab = request.getfixturevalue("lab")
    if request.node.stash[FAILED]:
        end_all_jobs(running)
    else:
        running.check()


def end_all_jobs(running: testing.RunningLab) -> None:
    """Best effort: this may be what has failed."""
    running.run(("scancel", "--partition=gpu"), check=False)
    running.run(("scancel", "--partition=cpu"), check=False)
    with contextlib.suppress(AssertionError):
        testing.until(lambda: not running.run(("squeue", "--noheader"), check=False).stdout, seconds=40)


@pytest.fixture(scope="session")
def lab(shared_lab: testing.RunningLab) -> testing.RunningLab:
    """A complete lab: Slurm, a cluster, penstockd and hooks."""
    return shared_lab


@pytest.fixture(scope="session")
def stormy_lab(request: pytest.FixtureRequest) -> Iterator[testing.RunningLab]:
    """A lab whose penstockd uses the fault proxy, on either kind of cluster."""
    with labs.kept_for_all(request.config, "--fault-proxy") as running:
        request.config.stash[labs.STORMY] = running
        yield running


@pytest.fixture
def switch(stormy_lab: testing.RunningLab) -> Iterator[controlsocket.Control]:
    """The fault proxy's control; cleared afterwards."""
    found = controlsocket.Control(stormy_lab.place.fault_proxy_control)
    found.seed(7)
    yield found
    found.clear()


@pytest.fixture(scope="session")
def slurm_lab() -> Iterator[testing.RunningLab]:
    """Plain Slurm without the bridge, for tests of the lab itself."""
    with testing.temporary_lab("--no-bridge") as running:
        yield running


@pytest.fixture
def place() -> Iterator[paths.LabPaths]:
    """Paths for a test's own lab, removed afterwards."""
    made = testing.new_place()
    yield made
    testing.lab_command(made, "down", "--force", check=False)
    assert not made.directory.exists()


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that users can write and pods cannot see."""
    with tempfile.TemporaryDirectory(prefix="penstock-outside-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)
