"""What penstockd knows of jobs: reservations, and what is remembered for how long."""

from __future__ import annotations

from penstock.bridge import jobstore
from tests.unit import fakes


def test_room_is_held_until_the_last_node_is_released() -> None:
    """Each node's Epilog gives back that node's share."""
    kept = jobstore.Store(lambda: 5.0)
    kept.reserve(fakes.allocation(1, on=("n1", "n2"), gpus=2))
    kept.release(1, "n1")
    assert kept.reserved_on("n1", besides=0).gpus == 0
    assert kept.reserved_on("n2", besides=0).gpus == 2
    kept.release(1, "n2")
    assert kept.reservation(1) is None
    assert kept.reservations() == ()


def test_a_new_attempt_replaces_the_old_reservation() -> None:
    """A job never holds twice."""
    kept = jobstore.Store(lambda: 5.0)
    kept.reserve(fakes.allocation(1, on=("n1",), gpus=2))
    kept.reserve(fakes.allocation(1, on=("n2",), gpus=1, restart=1))
    assert kept.reserved_on("n1", besides=0).gpus == 0
    assert kept.reserved_on("n2", besides=0).gpus == 1


def test_releasing_what_is_not_held_is_harmless() -> None:
    """An Epilog may come after penstockd has forgotten the job."""
    kept = jobstore.Store(lambda: 5.0)
    kept.release(9, "n1")
    kept.unreserve(9)
    assert kept.reservations() == ()
