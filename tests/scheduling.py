"""Which worker runs what, and in which order: a file is never split, those that share a lab of their own stay
together, and what takes longest begins first, so that no worker is left alone with it at the end.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # it has annotations, unmarked

TOGETHER = {
    "tests/e2e/test_regressions.py": "a stormy lab, named bugs",
    "tests/e2e/test_soak.py": "a stormy lab, named bugs",
    "tests/e2e/test_outages_api.py": "a stormy lab, outages",
    "tests/e2e/test_outages_slurm.py": "a stormy lab, outages",
}
"""Files whose tests need a lab of another kind, which costs more than most of them do."""
LONGEST_FIRST = (
    "a stormy lab",
    "tests/e2e/test_intake.py",
    "tests/e2e/test_bridge.py",
    "tests/conformance/test_lifecycle.py",
    "tests/e2e/test_semantics_booking.py",
    "tests/e2e/test_gang.py",
    "tests/conformance/test_outages.py",
    "tests/e2e/test_site.py",
    "tests/e2e/",
    "tests/",
)
"""Files and folders; what is in none of the others is in the last."""


def scope_of(nodeid: str) -> str:
    """What a worker takes as a whole."""
    file = nodeid.partition("::")[0]
    return TOGETHER.get(file, file)


def rank(nodeid: str) -> int:
    """Where its scope stands in the queue."""
    scope = scope_of(nodeid)
    return next(number for number, place in enumerate(LONGEST_FIRST) if scope.startswith(place))


class ByLab(LoadFileScheduling):  # type: ignore[misc]  # the same: to mypy it is Any
    """Like --dist=loadfile, but for the files above."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByLab | None:
    """Take the place of --dist=loadfile, and of no other choice."""
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return ByLab(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest first; all others in their order."""
    items.sort(key=lambda item: rank(item.nodeid))
