"""Host names of pods, and the lines of /etc/hosts by which they find each other."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.render import hostnames


@pytest.mark.parametrize(
    ("node", "label", "names"),
    [
        ("n1", "n1", ("n1",)),
        ("gpu_1", "gpu-1", ("gpu_1", "gpu-1")),
        ("GPU1", "gpu1", ("GPU1", "gpu1")),
        ("n1.hall.example.org", "n1", ("n1.hall.example.org", "n1")),
        ("n" * 70, "n" * 63, ("n" * 70, "n" * 63)),
        ("-n_", "n", ("-n_", "n")),
        ("__", "", ("__",)),
    ],
)
def test_names_of_a_node(node: str, label: str, names: tuple[str, ...]) -> None:
    """Its own first; the pod's host name is a DNS label."""
    assert hostnames.label_of(node) == label
    assert hostnames.names_of(node) == names


@given(some.text(max_size=80))
def test_every_host_name_is_accepted_by_kubernetes(node: str) -> None:
    label = hostnames.label_of(node)
    assert label == "" or re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", label)


def test_one_address_for_each_name() -> None:
    """Two nodes with the same label are found by their own names only."""
    nodes, addresses = ("a.x", "a.y", "b.x", "c"), ("10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::4")
    assert hostnames.lines(nodes, addresses, without=3) == "10.0.0.1 a.x\n10.0.0.2 a.y\n10.0.0.3 b.x b\n"
    assert hostnames.lines(nodes, addresses, without=0) == "10.0.0.2 a.y\n10.0.0.3 b.x b\nfd00::4 c\n"
