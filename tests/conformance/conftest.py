"""One cluster for all files here, which PENSTOCK_TEST_KUBERNETES chooses, and a namespace for each test.

The product relies on everything that is asserted here. Where the dev cluster differs from a real Kubernetes,
the dev cluster is wrong.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from penstock_lab import spec, testing
from tests.conformance import client

NODE = "n1"


@pytest.fixture(scope="session")
def lab(shared_lab: testing.RunningLab) -> testing.RunningLab:
    """A lab; its Slurm is not used."""
    return shared_lab


@pytest.fixture
def api(lab: testing.RunningLab) -> Iterator[client.Client]:
    """An administrator in a new namespace, which is removed afterwards."""
    with client.Client(lab.place.admin_kubeconfig, f"t-{uuid.uuid4().hex[:12]}") as found:
        path = f"/api/v1/namespaces/{found.namespace}"
        found.call("POST", "/api/v1/namespaces", {"metadata": {"name": found.namespace}})
        _wait_for_account(found)
        yield found
        names = [item["metadata"]["name"] for item in found.get("pods")["items"]]
        for name in names:
            found.delete("pods", name, {"gracePeriodSeconds": 1})
        for name in names:
            found.gone("pods", name)
        found.call("DELETE", path)


def _wait_for_account(api: client.Client) -> None:
    """Wait for the namespace's service account, without which a real API server creates no pod. If the test
    before has killed the API server, its controller may take half a minute to create it.
    """
    if testing.kubernetes() != spec.DEV:
        api.until(lambda found: found["kind"] == "ServiceAccount", "serviceaccounts", "default", patience=120)


@pytest.fixture
def node(lab: testing.RunningLab) -> str:
    """A node that runs pods."""
    return NODE
