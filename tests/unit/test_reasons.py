"""Kinds of refusals and outcomes: each has words, a line on its page, and one meaning."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import make_reference

from penstock.model import reasons, sentences
from penstock.model.reasons import Outcome, OutcomeKind, Refusal, RefusalKind

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", RefusalKind)
def test_every_refusal_has_words(kind: RefusalKind) -> None:
    """One line that names what it is about."""
    refusal = Refusal(kind=kind, node="n1", resource="gpu", wanted="2", free="1", pod="p", detail="why")
    text = sentences.refusal(refusal)
    assert text
    assert "{" not in text
    assert kind in reasons.REFUSALS


@pytest.mark.parametrize("kind", OutcomeKind)
def test_every_outcome_but_the_scripts_own_has_words(kind: OutcomeKind) -> None:
    """An exit code alone is the script's doing and needs none."""
    text = sentences.outcome(Outcome(kind=kind, exit_code=1, detail="" if kind == "exited" else "why"))
    assert bool(text) is (kind is not OutcomeKind.EXITED)
    assert "{" not in text
    assert kind in reasons.OUTCOMES


def test_braces_of_a_user_are_not_read_as_a_template() -> None:
    """A pod's message may contain anything."""
    outcome = Outcome(kind=OutcomeKind.NOT_ALLOWED, exit_code=1, detail="{0.kind} {x}")
    assert sentences.outcome(outcome) == "not started: {0.kind} {x}"


def test_another_ranks_end_is_told_with_its_rank() -> None:
    """The job's own exit code is 1: its script did not end."""
    ended = Outcome(exit_code=0).of_rank(2)
    assert (ended.exit_code, ended.kind) == (1, OutcomeKind.RANK_ENDED)
    assert sentences.outcome(ended) == "rank 2: its pod ended with exit code 0"
    lost = reasons.NODE_LOST.of_rank(1, "n2")
    assert lost.requeue
    assert sentences.outcome(lost) == "not started: rank 1 on n2: the pod's node is gone from Kubernetes"


def test_the_page_of_reasons_is_up_to_date() -> None:
    """scripts/make_reference.py was run after a kind changed."""
    assert (ROOT / "docs/reference/reasons.md").read_text() == make_reference.reasons()
