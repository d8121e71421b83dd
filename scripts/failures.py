"""A pytest plugin that notes each test that fails, and what it said, for whoever runs it again.

Loaded by scripts/reruns.py with `-p scripts.failures`; the file is named in the environment.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

FILE = "PENSTOCK_TEST_FAILURES"


def pytest_configure(config: pytest.Config) -> None:
    """Workers tell the process that started them, which takes the notes."""
    if os.environ.get(FILE) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notes(Path(os.environ[FILE]), config.rootpath))


class Notes:
    """A line of JSON for each failure: in a test, in its fixtures, or in reading its file."""

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
