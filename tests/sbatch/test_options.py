"""The option table is complete and consistent, and the documentation is generated from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.sbatch import compatibility, options
from penstock.sbatch.compiler import Context, compile_script
from penstock.sbatch.values.grammars import GRAMMARS, grammar

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def test_every_grammar_exists() -> None:
    """Flags have none."""
    for option in options.every_option():
        assert (option.argument == "none") == (option.grammar == "flag"), option.name
        if option.grammar != "flag":
            assert callable(grammar(option.grammar))
    assert set(GRAMMARS) == {option.grammar for option in options.every_option()} - {"flag"}


def test_names_and_letters_are_unique() -> None:
    """In every release; and every row has a note or treatment."""
    rows = options.every_option()
    for release in options.RELEASES:
        known = [option for option in rows if option.known_in(release)]
        assert len({option.name for option in known}) == len(known)
        letters = [option.short for option in known if option.short]
        assert len(set(letters)) == len(letters)
    assert all(option.note for option in rows)
    assert all(option.since in ("", *options.RELEASES) for option in rows)


@pytest.mark.parametrize(("release", "count"), [("22.05", 106), ("24.11", 114), ("26.05", 120)])
def test_number_of_options(release: str, count: int) -> None:
    """Counted on sbatch 22.05.8, 24.11.5 and 26.05.5 by completion of every first letter."""
    assert len(options.table(release).by_name) == count


@pytest.mark.parametrize(
    ("release", "option", "accepted"),
    [
        ("22.05", "--power=level", True),
        ("24.11", "--power=level", False),
        ("22.05", "--segment=2", False),
        ("24.11", "--segment=2", True),
        ("22.05", "--tres-per-task=cpu=2", False),
        ("24.11", "--tres-per-task=cpu=2", True),
        ("22.05", "--extra=1:1", True),
        ("24.11", "--extra=text", True),
        ("25.11", "--mem-bind=local,sort", True),
        ("26.05", "--mem-bind=local,sort", False),
        ("23.11", "--begin=elevenses", False),
        ("24.05", "--deadline=elevensestomorrow", True),
        ("22.05", "--gpu-bind=c", True),
        ("23.02", "--gpu-bind=c", False),
        ("23.02", "--gpu-bind=verbose,closest", True),
        ("22.05", "--gpu-bind=map:0", False),
        ("24.11", "--gpu-bind=map:0", True),
    ],
)
def test_releases_differ(release: str, option: str, accepted: bool) -> None:
    """--extra is a prefix before it is a name."""
    done = compile_script(f"#!/bin/sh\n#SBATCH {option}\n".encode(), context=Context(release=release))
    assert done.ok is accepted


@pytest.mark.parametrize(
    ("version", "release"), [("22.05.8", "22.05"), ("25.05", "25.05"), ("27.1", "26.05"), ("20.11", "22.05")]
)
def test_release_of_a_version(version: str, release: str) -> None:
    """Patch levels are ignored; newer versions count as the newest known."""
    assert options.release_of(version) == release


def test_documentation_is_up_to_date() -> None:
    """See scripts/make_compatibility.py."""
    assert PAGE.read_text(encoding="utf-8") == compatibility.render()
