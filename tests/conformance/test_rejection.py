"""A kubelet has the last word: what does not fit on its node ends as Failed, with the reason."""

from __future__ import annotations

import pytest

from tests.conformance import client


@pytest.mark.parametrize(
    ("resource", "amount", "reason"),
    [
        ("cpu", "1000", "OutOfcpu"),
        ("memory", "100Ti", "OutOfmemory"),
        ("nvidia.com/gpu", "1000", "OutOfnvidia.com/gpu"),
    ],
)
def test_pod_exceeding_the_node_is_rejected(
    api: client.Client, node: str, resource: str, amount: str, reason: str
) -> None:
    """The pod never starts, and its message names the missing resource."""
    resources = {"requests": {resource: amount}, "limits": {resource: amount}}
    api.create("pods", client.pod("big", container={"resources": resources}))
    api.bind("big", node)
    found = api.phase("big", "Failed")
    assert found["status"]["reason"] == reason
    assert resource in found["status"]["message"]
    assert not found["status"].get("containerStatuses", [{}])[0].get("state", {}).get("running")


def test_pod_on_unsuitable_node_is_rejected(api: client.Client, node: str) -> None:
    """A pod whose nodeSelector does not match is refused by the kubelet."""
    api.create("pods", client.pod("astray", nodeSelector={"kubernetes.io/hostname": "elsewhere"}))
    api.bind("astray", node)
    assert api.phase("astray", "Failed")["status"]["reason"] == "NodeAffinity"


def test_room_is_counted_over_all_pods(api: client.Client, node: str) -> None:
    """A second pod that would fit alone is refused beside the first."""
    every = api.call("GET", f"/api/v1/nodes/{node}")["status"]["allocatable"]["nvidia.com/gpu"]
    resources = {"resources": {"limits": {"nvidia.com/gpu": every}}}
    for name in ("first", "second"):
        api.create("pods", client.shell(name, "sleep 30", container=resources))
        api.bind(name, node)
        api.phase(name, "Running", "Failed")
    assert api.get("pods", "first")["status"]["phase"] == "Running"
    assert api.get("pods", "second")["status"]["reason"] == "OutOfnvidia.com/gpu"
