"""Runs the end-to-end tests on every release of Slurm with the dev cluster, and on every Kubernetes with the
installed Slurm.

Each cell is a separate test run with a log in .matrix/; a table at the end shows the results. A cell that
cannot run here is skipped with the reason; the exit code tells whether one has failed.

usage: python -m scripts.matrix [CELL …]        such as slurm-24.11 or kubernetes-1.35; all without one
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

from rich import console, table
from scripts import rights

from penstock import errors, wellknown
from penstock.model import releases
from penstock_lab import progress, testing
from penstock_lab.kubernetes import builds, requirements
from penstock_lab.slurm import programs, suites

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".matrix"
SLURM, KUBERNETES = "slurm-", "kubernetes-"
CELLS = (
    *(f"{SLURM}{release}" for release in suites.CHOICES),
    *(f"{KUBERNETES}{version}" for version in sorted(builds.VERSIONS)),
)
CELL_SECONDS = 5400
PASSED, FAILED, SKIPPED = "passed", "FAILED", "skipped"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A line of the table."""

    cell: str
    result: str
    remark: str
    seconds: float


def main(arguments: list[str]) -> None:
    rights.become_root("scripts.matrix", arguments, why="the end-to-end tests need root")
    unknown = sorted(set(arguments) - set(CELLS))
    if unknown:
        sys.exit(f"penstock: unknown cell: {', '.join(unknown)}; cells are {', '.join(CELLS)}")
    LOGS.mkdir(exist_ok=True)
    outcomes = [run_cell(cell) for cell in arguments or CELLS]
    show(outcomes)
    sys.exit(any(outcome.result == FAILED for outcome in outcomes))


def run_cell(cell: str) -> Outcome:
    """Prepare the cell and run its tests, or skip it with the reason."""
    began = time.monotonic()
    reason = missing(cell)
    if reason:
        return Outcome(cell, SKIPPED, reason, 0.0)
    print(f"penstock: {cell} runs, with its output in {LOGS / cell}.log", flush=True)
    result, remark = run_tests(cell)
    return Outcome(cell, result, remark, time.monotonic() - began)


def missing(cell: str) -> str:
    """Why the cell cannot run on this machine; empty if it can. Downloads its Slurm."""
    if cell.startswith(KUBERNETES):
        return "; ".join(requirements.missing(os.environ))
    reason = testing.missing()
    release = cell.removeprefix(SLURM)
    if reason or releases.parse(release) == programs.installed():
        return reason
    try:
        programs.ensure(release, listener=progress.PlainLines(console.Console()), environment=os.environ)
    except errors.PenstockError as error:
        return error.message
    return ""


def run_tests(cell: str) -> tuple[str, str]:
    """The result, and the number of tests by result."""
    report = LOGS / f"{cell}.xml"
    report.unlink(missing_ok=True)
    try:
        with (LOGS / f"{cell}.log").open("w") as log:
            code = subprocess.run(
                [*argv(cell), f"--junitxml={report}"],
                env=os.environ | settings(cell),
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=CELL_SECONDS,
                check=False,
            ).returncode
    except subprocess.TimeoutExpired:
        return FAILED, f"not finished after {CELL_SECONDS} s"
    remark = count(report) if report.exists() else f"exit code {code}, no tests run"
    return (PASSED if code == 0 and report.exists() else FAILED), remark


def settings(cell: str) -> dict[str, str]:
    """Variables that set the tests' versions."""
    if cell.startswith(SLURM):
        return {wellknown.ENV_TEST_SLURM: cell.removeprefix(SLURM), wellknown.ENV_TEST_KUBERNETES: "dev"}
    return {wellknown.ENV_TEST_KUBERNETES_VERSION: cell.removeprefix(KUBERNETES)}


def argv(cell: str) -> list[str]:
    if cell.startswith(SLURM):
        return [sys.executable, "-m", "scripts.run_tests", "tests/e2e"]
    return [sys.executable, "-m", "scripts.test_kubernetes"]


def count(report: Path) -> str:
    """`63 passed, 2 skipped` from pytest's report."""
    suite = ElementTree.parse(report).find("testsuite")  # noqa: S314  # written by our own pytest
    numbers = {name: int(suite.get(name, 0)) if suite is not None else 0 for name in ("tests", *_OTHERS)}
    passed = numbers.pop("tests") - sum(numbers.values())
    others = (f"{number} {name}" for name, number in numbers.items() if number)
    return ", ".join((f"{passed} passed", *others))


_OTHERS = ("failures", "errors", "skipped")


def show(outcomes: list[Outcome]) -> None:
    shown = table.Table(title="Version matrix", title_justify="left")
    for heading in ("cell", "result", "tests", "seconds"):
        shown.add_column(heading, justify="right" if heading == "seconds" else "left")
    for outcome in outcomes:
        shown.add_row(outcome.cell, outcome.result, outcome.remark, f"{outcome.seconds:.0f}")
    console.Console().print(shown)


if __name__ == "__main__":
    main(sys.argv[1:])
