"""Broken builds are caught by the suite's own tests. Each build in `builds` is a sitecustomize module, loaded
through PYTHONPATH in the test's process and in every process of its lab, which breaks one promise. The
same test passes without it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from penstock import wellknown
from penstock_lab import testing
from tests import nested

BUILDS = Path(__file__).resolve().parent / "builds"
FAILED = 1  # pytest's exit status when tests ran and failed
SECONDS = 240


def run(scenario: str, *, build: str = "") -> subprocess.CompletedProcess[str]:
    """Run the test in its own pytest, with this build or without one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    if build:
        kept["PYTHONPATH"] = str(BUILDS / build)
    argv = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", scenario)
    return nested.run(argv, environment=kept, seconds=SECONDS)


CAUGHT = {
    "epilog": "tests/unit/test_ask_hook.py::test_the_epilog_asks_until_the_pods_are_gone",
    "admission": "tests/unit/test_capacity.py::test_reserved_room_is_taken",
    "recovery": "tests/unit/test_endings.py::test_a_pod_missing_from_the_cache_is_read_from_the_api",
}


@pytest.mark.parametrize(("build", "scenario"), CAUGHT.items(), ids=CAUGHT)
def test_broken_build_is_caught(build: str, scenario: str) -> None:
    """The test fails with the build and passes without it."""
    broken = run(scenario, build=build)
    assert broken.returncode == FAILED, broken.stdout + broken.stderr
    assert "1 failed" in broken.stdout
    sound = run(scenario)
    assert sound.returncode == 0, sound.stdout + sound.stderr


CAUGHT_END_TO_END = {
    "epilog": (
        "test_gang.py::test_node_is_not_freed_while_a_pod_terminates",
        "== 'COMPLETING'",
    ),
    "admission": (
        "test_semantics_refused.py::test_reserved_room_is_not_given_away",
        "assert 'waits for gpu on n3' in ''",
    ),
    "recovery": ("test_outages_api.py::test_empty_list_ends_no_job", "assert holds()"),
}
"""By build: a test with its own lab, and its failure message."""


@pytest.mark.skipif(
    bool(testing.missing()) or wellknown.ENV_TEST_KUBERNETES in os.environ,
    reason="needs a lab of the default kind",
)
@pytest.mark.parametrize("build", CAUGHT_END_TO_END)
def test_broken_build_is_caught_end_to_end(build: str) -> None:
    """A node freed too early, a GPU promised twice, a job ended by an empty list."""
    scenario, complaint = CAUGHT_END_TO_END[build]
    broken = run(f"tests/e2e/{scenario}", build=build)
    assert broken.returncode == FAILED, broken.stdout + broken.stderr
    assert complaint in broken.stdout
