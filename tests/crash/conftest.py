"""A lab with crash points, replaced after a failure, and the matrix as a table at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import wellknown
from penstock_lab import testing

WHOLE = "PENSTOCK_TEST_CRASH"
"""Environment variable: `all` runs every row, otherwise the quick ones."""
WIDTHS = (22, 10, 15, 26, 6, 6)
LAST_LINES = 60
LAST_CHARACTERS = 1500
FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session", autouse=True)
def _lab_possible() -> None:
    """Skip all tests, with the reason, if no lab can be made."""
    reason = testing.missing()
    if reason:
        pytest.skip(reason)


@dataclasses.dataclass
class Workshop:
    """One lab at a time, shared by the rows; after a failed row the next one gets a new lab."""

    lab: testing.RunningLab | None = None
    stack: contextlib.ExitStack = dataclasses.field(default_factory=contextlib.ExitStack)

    def open(self) -> testing.RunningLab:
        if self.lab is None or not self.lab.place.directory.exists():
            self.close()
            self.lab = self._made()
        return self.lab

    def _made(self) -> testing.RunningLab:
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-crash-"))
        Path(folder).chmod(0o777)
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv(wellknown.ENV_CRASH_POINTS, folder)
        return self.stack.enter_context(testing.temporary_lab())

    def close(self) -> None:
        self.lab = None
        self.stack.close()


@pytest.fixture(scope="session")
def workshop(_lab_possible: None) -> Iterator[Workshop]:
    """This process's lab."""
    made = Workshop()
    yield made
    made.close()


@pytest.fixture
def crash_lab(workshop: Workshop, request: pytest.FixtureRequest) -> Iterator[testing.RunningLab]:
    """A complete lab with crash points; discarded if the test fails."""
    lab = workshop.open()
    yield lab
    if request.node.stash.get(FAILED, False):
        workshop.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Record failures, and keep penstockd's log before its lab is removed."""
    report: pytest.TestReport = yield  # type: ignore[assignment]  # what a wrapper is sent is not typed
    if report.failed and report.when == "call":
        item.stash[FAILED] = True
        lab = getattr(item, "funcargs", {}).get("crash_lab")
        if isinstance(lab, testing.RunningLab):
            for name in ("penstockd", "slurmctld"):
                report.sections.append((f"{name}.log", last_words(lab.place.log, name)))
    return report  # type: ignore[return-value]  # as above


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print at once why a row failed: the whole matrix takes long."""
    if report.failed and "tests/crash/" in report.nodeid:
        sys.stdout.write(f"\n{report.nodeid}: {report.longreprtext[-LAST_CHARACTERS:]}\n")
        sys.stdout.flush()


def last_words(folder: Path, name: str) -> str:
    """The end of a daemon's log."""
    found = next(iter(sorted(folder.rglob(f"{name}*.log"))), None)
    lines = found.read_text(errors="replace").splitlines() if found else []
    return "\n".join(lines[-LAST_LINES:])


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that users can write and pods cannot see."""
    with tempfile.TemporaryDirectory(prefix="penstock-outside-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per crash: the victim, the step, and how the job ended."""
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call" and "step" in dict(report.user_properties)
    ]
    if os.environ.get(WHOLE) != "all" or not reports:
        return
    terminalreporter.section("crash matrix")
    for line in sorted(map(_line, reports)):
        terminalreporter.write_line(line)
    points = {dict(report.user_properties)["step"] for report in reports}
    passed = sum(report.passed for report in reports)
    terminalreporter.write_line(
        f"{passed} of {len(reports)} crashes at {len(points)} steps ended as they must"
    )


def _line(report: pytest.TestReport) -> str:
    known = dict(report.user_properties)
    cells = [known["step"], known["killed"], known["job"], known.get("ended", "?"), f"{report.duration:.1f}"]
    mark = "ok" if report.passed else "FAILED"
    return "  ".join(
        f"{cell!s:<{width}}" for cell, width in zip([*cells, mark], WIDTHS, strict=True)
    ).rstrip()
