"""A lab whose crash points can be armed, and the matrix as a table at the end."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import wellknown
from penstock.lab import testing

WHOLE = "PENSTOCK_TEST_CRASH"
"""Environment variable: `all` runs every row, otherwise the quick ones."""
COLUMNS = ("step", "killed", "job", "ended", "seconds")


@pytest.fixture(scope="session", autouse=True)
def _lab_possible() -> None:
    """Skip everything here, with the reason, where no lab can be made."""
    reason = testing.missing()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def crash_lab() -> Iterator[testing.RunningLab]:
    """The whole thing, with crash points."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-crash-"))
        Path(folder).chmod(0o777)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv(wellknown.ENV_CRASH_POINTS, folder)
        yield stack.enter_context(testing.temporary_lab())


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that users can write and pods cannot see."""
    with tempfile.TemporaryDirectory(prefix="penstock-outside-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per crash: what was killed where, and how the job ended all the same."""
    reports = (
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call" and "tests/crash/" in report.nodeid
    )
    lines = [_line(dict(report.user_properties), report) for report in reports]
    lines = [line for line in lines if line]
    if os.environ.get(WHOLE) == "all" and lines:
        terminalreporter.section("crash matrix")
        for line in sorted(lines):
            terminalreporter.write_line(line)


def _line(known: dict[str, object], report: pytest.TestReport) -> str:
    if "step" not in known:
        return ""
    cells = [known["step"], known["killed"], known["job"], known.get("ended", "?"), f"{report.duration:.1f}"]
    mark = "ok" if report.passed else "FAILED"
    return "  ".join(
        f"{cell!s:<{width}}" for cell, width in zip([*cells, mark], (22, 10, 10, 26, 6, 6), strict=True)
    )
