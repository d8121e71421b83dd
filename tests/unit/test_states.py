"""Slurm's words for states, and that nobody else writes them down."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import penstock
import penstock_lab
from penstock.model import states

WORDS = {*states.JobState, *states.NodeState}


def test_states_are_compared_with_the_one_list() -> None:
    """A word that is mistyped in a comparison would never be true, and nobody would notice."""
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


def test_every_state_is_at_most_one_of_having_nodes_and_being_over() -> None:
    """Nothing may be started for a job that is over, and nothing taken from one that has its nodes."""
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
def test_words_of_a_node(state: str, words: set[str]) -> None:
    """As scontrol shows them, and with sinfo's signs."""
    assert states.words_of_node(state) == words
