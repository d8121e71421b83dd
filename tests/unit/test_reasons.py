"""Each kind of refusal and outcome has a sentence, a line on its page, and one meaning."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import make_reference

from penstock.model import reasons, sentences
from penstock.model.reasons import Outcome, OutcomeKind, Refusal, RefusalKind

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", RefusalKind)
def test_every_refusal_has_a_sentence(kind: RefusalKind) -> None:
    """One line that names its object."""
    refusal = Refusal(kind=kind, node="n1", resource="gpu", wanted="2", free="1", pod="p", detail="why")
    text = sentences.refusal(refusal)
    assert text
    assert "{" not in text
    assert kind in reasons.REFUSALS


@pytest.mark.parametrize("kind", OutcomeKind)
def test_every_outcome_has_a_sentence(kind: OutcomeKind) -> None:
    """Except the script's own end."""
    text = sentences.outcome(Outcome(kind=kind, exit_code=1, detail="" if kind == "exited" else "why"))
    assert bool(text) is (kind is not OutcomeKind.EXITED)
    assert "{" not in text
    assert kind in reasons.OUTCOMES


def test_braces_in_details_are_not_a_template() -> None:
    """A pod's message may contain anything."""
    outcome = Outcome(kind=OutcomeKind.NOT_ALLOWED, exit_code=1, detail="{0.kind} {x}")
    assert sentences.outcome(outcome) == "not started: {0.kind} {x}"


def test_end_of_another_rank_names_the_rank() -> None:
    """The job's exit code is 1, because its script did not end."""
    ended = Outcome(exit_code=0).of_rank(2)
    assert (ended.exit_code, ended.kind) == (1, OutcomeKind.RANK_ENDED)
    assert sentences.outcome(ended) == "rank 2: its pod ended with exit code 0"
    lost = reasons.NODE_LOST.of_rank(1, "n2")
    assert lost.requeue
    assert sentences.outcome(lost) == "not started: rank 1 on n2: the pod's node is gone from Kubernetes"


def test_reasons_page_is_up_to_date() -> None:
    """scripts/make_reference.py was run after a change."""
    assert (ROOT / "docs/reference/reasons.md").read_text() == make_reference.reasons()
