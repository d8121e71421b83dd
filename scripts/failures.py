"""A pytest plugin that records failed tests and their output, for the rerun.

Loaded by scripts/reruns.py with `-p scripts.failures`; an environment variable has the file's path.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

FILE = "PENSTOCK_TEST_FAILURES"


def pytest_configure(config: pytest.Config) -> None:
    """Only the controller records: xdist's workers report to it."""
    if os.environ.get(FILE) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notes(Path(os.environ[FILE]), config.rootpath))


class Notes:
    """Writes a line of JSON for each failure: in a test, in its fixtures, or in collection."""

    def __init__(self, file: Path, root: Path) -> None:
        self._file = file
        self._root = root

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._note(report.nodeid, report.when or "", report.longreprtext)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note(report.nodeid, "collect", report.longreprtext)

    def _note(self, nodeid: str, when: str, said: str) -> None:
        line = {"test": f"{self._root}/{nodeid}", "name": nodeid, "when": when, "said": said}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
