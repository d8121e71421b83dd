"""The store: reservations."""

from __future__ import annotations

from penstock.bridge import jobstore
from tests.unit import fakes


def test_each_release_frees_one_node() -> None:
    kept = jobstore.Store(lambda: 5.0)
    kept.reserve(fakes.allocation(1, on=("n1", "n2"), gpus=2))
    kept.release(1, "n1")
    assert kept.reserved_on("n1", besides=0).gpus == 0
    assert kept.reserved_on("n2", besides=0).gpus == 2
    kept.release(1, "n2")
    assert kept.reservation(1) is None
    assert kept.reservations() == ()


def test_a_new_attempt_replaces_the_old_reservation() -> None:
    kept = jobstore.Store(lambda: 5.0)
    kept.reserve(fakes.allocation(1, on=("n1",), gpus=2))
    kept.reserve(fakes.allocation(1, on=("n2",), gpus=1, restart=1))
    assert kept.reserved_on("n1", besides=0).gpus == 0
    assert kept.reserved_on("n2", besides=0).gpus == 1


def test_release_without_reservation_is_ignored() -> None:
    """An Epilog may come after penstockd has forgotten the job."""
    kept = jobstore.Store(lambda: 5.0)
    kept.release(9, "n1")
    kept.unreserve(9)
    assert kept.reservations() == ()
