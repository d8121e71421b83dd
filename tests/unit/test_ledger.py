"""Promised room."""

from __future__ import annotations

from penstock.bridge import ledger
from tests.unit import fakes


def test_room_is_held_until_the_last_node_is_released() -> None:
    """Each node's Epilog gives back that node's share."""
    promised = ledger.Ledger()
    promised.hold(fakes.allocation(1, on=("n1", "n2"), gpus=2))
    promised.release(1, "n1")
    assert promised.held_on("n1", besides=0).gpus == 0
    assert promised.held_on("n2", besides=0).gpus == 2
    promised.release(1, "n2")
    assert promised.of(1) is None
    assert promised.jobs() == ()


def test_a_new_attempt_replaces_the_old_promise() -> None:
    """A job never holds twice."""
    promised = ledger.Ledger()
    promised.hold(fakes.allocation(1, on=("n1",), gpus=2))
    promised.hold(fakes.allocation(1, on=("n2",), gpus=1, restart=1))
    assert promised.held_on("n1", besides=0).gpus == 0
    assert promised.held_on("n2", besides=0).gpus == 1


def test_releasing_what_is_not_held_is_harmless() -> None:
    """An Epilog may come after penstockd has forgotten the job."""
    promised = ledger.Ledger()
    promised.release(9, "n1")
    promised.forget(9)
    assert promised.jobs() == ()
