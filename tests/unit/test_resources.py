"""Amounts and Kubernetes quantities."""

from __future__ import annotations

import fractions

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kube import codec, podview, types
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
def test_quantities_are_exact(text: str | int, value: int | fractions.Fraction) -> None:
    """No float ever loses a byte."""
    assert resources.quantity(text) == value


@pytest.mark.parametrize("text", ["", "lots", "1Qi", "Gi", "1 2"])
def test_invalid_quantity_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        resources.quantity(text)


@given(st.integers(0, 10**6), st.sampled_from(["", "m", "k", "Ki", "Mi", "Gi"]))
def test_amounts_round_up(number: int, unit: str) -> None:
    """A fraction of a millicpu counts as one."""
    exact = resources.quantity(f"{number}{unit}") * 1000
    got = podview.amount({"cpu": f"{number}{unit}"}).millicpus
    assert exact <= got < exact + 1


def test_sums_and_differences_are_by_resource() -> None:
    some, more = fakes.amount(cpus=2, gib=4, gpus=1), fakes.amount(cpus=1, gib=1, gpus=2)
    assert some + more == fakes.amount(cpus=3, gib=5, gpus=3)
    assert (some + more) - more == some


def test_shortages() -> None:
    """Only what does not fit, in users' units, never below zero."""
    free = resources.Amount(millicpus=-500, memory=2**30, gpus=1)
    found = fakes.amount(cpus=2, gib=1, gpus=2).shortages(free)
    assert [(s.what, s.needed, s.free) for s in found] == [("gpu", "2", "1"), ("cpu", "2", "0")]


def test_overcommitted_resource_matters_only_if_requested() -> None:
    """Other pods took two GPUs more than the node has: a job without GPUs waited for them."""
    overbooked = fakes.amount(cpus=2, gib=1) - fakes.amount(gpus=2)
    assert fakes.amount(cpus=1, gib=1).shortages(overbooked) == ()
    (short,) = fakes.amount(cpus=1, gib=1, gpus=1).shortages(overbooked)
    assert (short.what, short.needed, short.free) == ("gpu", "1", "0")


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
        (["1"], [container("2", sidecar=True), container("4")], "1", 7000),
        (["1"], [container("4"), container("2", sidecar=True)], "1", 5000),
        (["1"], [container("3", sidecar=True), container("1"), container("2", sidecar=True)], "0", 6000),
    ],
)
def test_pod_requests_equal_kube_schedulers(
    containers: list[str], inits: list[types.Container], overhead: str, millicpus: int
) -> None:
    """Containers and sidecars add up, an init container counts with the sidecars before it, and overhead is
    added.
    """
    pod = types.Pod(
        spec=types.PodSpec(
            containers=[container(cpu) for cpu in containers],
            init_containers=inits,
            overhead={"cpu": overhead},
        )
    )
    assert podview.requested(pod).millicpus == millicpus


@pytest.mark.parametrize(
    ("asks", "status", "millicpus"),
    [
        ("1", {}, 1000),
        ("1", {"allocatedResources": {"cpu": "4"}}, 4000),
        ("1", {"resources": {"requests": {"cpu": "3"}}}, 3000),
        ("5", {"allocatedResources": {"cpu": "4"}, "resources": {"requests": {"cpu": "3"}}}, 5000),
    ],
)
def test_resized_container_counts_the_larger_amount(
    asks: str, status: dict[str, object], millicpus: int
) -> None:
    """Its allocation counts until the node has reduced it."""
    spec = {"containers": [{"name": "a", "resources": {"requests": {"cpu": asks}}}]}
    pod = msgspec.convert(
        {"spec": spec, "status": {"containerStatuses": [{"name": "a"} | status]}}, types.Pod
    )
    assert podview.requested(pod).millicpus == millicpus


def test_devices_of_init_containers_count_beside_sidecars() -> None:
    """Like CPU and memory."""

    def asking(gpus: int, cards: int, *, policy: str = "") -> types.Container:
        requests: dict[str, str | int | float] = {"nvidia.com/gpu": gpus, "amd.com/gpu": str(cards)}
        return types.Container(resources=types.Requirements(requests=requests), restart_policy=policy)

    inits = [asking(1, 2, policy="Always"), asking(2, 1)]
    pod = types.Pod(spec=types.PodSpec(containers=[asking(1, 4)], init_containers=inits))
    assert podview.requested(pod) == resources.Amount(gpus=3, devices=(("amd.com/gpu", 6),))


@pytest.mark.parametrize(
    ("whole", "millicpus", "memory"),
    [
        ({"cpu": "8", "memory": "16Gi"}, 8250, 16 * 2**30),
        ({"cpu": "8"}, 8250, 2**30),
        ({"memory": "16Gi"}, 1250, 16 * 2**30),
        ({"cpu": "500m", "nvidia.com/gpu": "4"}, 750, 2**30),
        ({}, 1250, 2**30),
    ],
)
def test_pod_level_requests_replace_containers(whole: dict[str, str], millicpus: int, memory: int) -> None:
    """CPU and memory only, each on its own; devices are the containers', and overhead is added."""
    requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    spec = {
        "containers": [{"name": "main", "resources": {"requests": requests}}],
        "resources": {"requests": whole},
        "overhead": {"cpu": "250m"},
    }
    pod = codec.decode(msgspec.json.encode({"spec": spec}), types.Pod)
    assert podview.requested(pod) == resources.Amount(millicpus=millicpus, memory=memory, gpus=1)
