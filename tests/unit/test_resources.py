"""Amounts and Kubernetes quantities."""

from __future__ import annotations

import fractions

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kube import reading, types
from penstock.model import resources
from tests.unit import fakes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        (2, 2),
        ("500m", fractions.Fraction(1, 2)),
        ("32Gi", 32 * 2**30),
        ("1e3", 1000),
        ("0.5", fractions.Fraction(1, 2)),
        ("1k", 1000),
        ("100n", fractions.Fraction(1, 10**7)),
    ],
)
def test_quantities_are_read_exactly(text: str | int, value: int | fractions.Fraction) -> None:
    """No float ever loses a byte."""
    assert resources.quantity(text) == value


@pytest.mark.parametrize("text", ["", "lots", "1Qi", "Gi", "1 2"])
def test_nonsense_is_not_a_quantity(text: str) -> None:
    """What Kubernetes would not take raises."""
    with pytest.raises(ValueError, match="quantity"):
        resources.quantity(text)


@given(st.integers(0, 10**6), st.sampled_from(["", "m", "k", "Ki", "Mi", "Gi"]))
def test_amounts_round_up(number: int, unit: str) -> None:
    """A millicpu more than nothing is not nothing."""
    exact = resources.quantity(f"{number}{unit}") * 1000
    got = reading.amount({"cpu": f"{number}{unit}"}).millicpus
    assert exact <= got < exact + 1


def test_sums_and_differences_are_by_resource() -> None:
    """Adding and taking away are inverse."""
    some, more = fakes.amount(cpus=2, gib=4, gpus=1), fakes.amount(cpus=1, gib=1, gpus=2)
    assert some + more == fakes.amount(cpus=3, gib=5, gpus=3)
    assert (some + more) - more == some


def test_a_shortage_says_what_is_missing() -> None:
    """Only what does not fit, in users' units, never below zero."""
    free = resources.Amount(millicpus=-500, memory=2**30, gpus=1)
    found = fakes.amount(cpus=2, gib=1, gpus=2).shortages(free)
    assert [(s.what, s.needed, s.free) for s in found] == [("gpu", "2", "1"), ("cpu", "2", "0")]


def container(cpu: str, *, sidecar: bool = False) -> types.Container:
    return types.Container(
        name=cpu,
        resources=types.Requirements(requests={"cpu": cpu}),
        restart_policy="Always" if sidecar else "",
    )


@pytest.mark.parametrize(
    ("containers", "inits", "overhead", "millicpus"),
    [
        (["1", "500m"], [], "0", 1500),
        (["1"], [container("3")], "0", 3000),
        (["4"], [container("3")], "0", 4000),
        (["1"], [container("1", sidecar=True)], "250m", 2250),
    ],
)
def test_a_pod_takes_what_the_scheduler_would_count(
    containers: list[str], inits: list[types.Container], overhead: str, millicpus: int
) -> None:
    """Containers and sidecars add up, init containers count by the biggest, overhead is on top."""
    pod = types.Pod(
        spec=types.PodSpec(
            containers=[container(cpu) for cpu in containers],
            init_containers=inits,
            overhead={"cpu": overhead},
        )
    )
    assert reading.requested(pod).millicpus == millicpus
