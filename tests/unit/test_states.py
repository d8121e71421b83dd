"""Slurm's states, and that no other module spells them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import penstock
import penstock_lab
from penstock.model import states

WORDS = {*states.JobState, *states.NodeState}


def test_states_are_compared_with_the_one_list() -> None:
    """A typo in a comparison would never be true, and go unnoticed."""
    found = {
        f"{path.name}:{node.lineno}"
        for package in (penstock, penstock_lab)
        for path in Path(package.__file__ or "").parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare) and "state" in ast.unparse(node)
        for side in (node.left, *node.comparators)
        for word in ast.walk(side)
        if isinstance(word, ast.Constant) and word.value in WORDS
    }
    assert found == set(), "use model/states.py"


def test_holding_and_over_are_disjoint() -> None:
    """Nothing may be started for a job that is over, and nothing removed from one that has its nodes."""
    assert not states.HOLDING & states.OVER
    assert states.AT_WORK < states.HOLDING
    assert states.BY_ITSELF < states.OVER < states.ENDING
    assert states.JobState.PENDING not in states.HOLDING | states.ENDING


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("IDLE", {"IDLE"}),
        ("MIXED+DRAIN", {"MIXED", "DRAIN"}),
        ("DOWN*+DRAIN", {"DOWN", "DRAIN", "NOT_RESPONDING"}),
        ("IDLE~", {"IDLE"}),
        ("IDLE+NOT_RESPONDING", {"IDLE", "NOT_RESPONDING"}),
    ],
)
def test_node_states_are_parsed(state: str, words: set[str]) -> None:
    """As scontrol prints them, and with sinfo's suffixes."""
    assert states.words_of_node(state) == words
