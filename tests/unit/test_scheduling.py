"""Who runs which file, and when: labs are dear, and the end should come for all workers at once."""

from __future__ import annotations

import pytest

from tests import scheduling

STORM, OTHER = "tests/e2e/test_soak.py", "tests/e2e/test_regressions.py"


def test_files_that_share_a_lab_stay_together() -> None:
    """All others are on their own, whatever a test in them is called."""
    assert scheduling.scope_of(f"{STORM}::test_x") == scheduling.scope_of(f"{OTHER}::test_y[a::b]")
    assert scheduling.scope_of("tests/unit/test_a.py::T::test_x") == "tests/unit/test_a.py"


def test_the_longest_begin() -> None:
    """Storms, then what is known to be long, then what has a lab, then the rest."""
    files = ("tests/unit/test_a.py", "tests/e2e/test_seeing.py", "tests/e2e/test_site.py", STORM)
    ranks = [scheduling.rank(f"{file}::test_x") for file in files]
    assert ranks == sorted(set(ranks), reverse=True)


def test_every_file_that_is_named_is_there(pytestconfig: pytest.Config) -> None:
    """A renamed file would lose its place in silence."""
    named = [*scheduling.TOGETHER, *(place for place in scheduling.LONGEST_FIRST if "/" in place)]
    assert [place for place in named if not (pytestconfig.rootpath / place).exists()] == []
