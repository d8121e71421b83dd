"""A shared dev cluster, with a namespace for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.devcluster import clusters as testing


@pytest.fixture(scope="session")
def cluster() -> Iterator[testing.Running]:
    """A shared cluster of two nodes; tests that set faults or fill nodes use their own."""
    with testing.serve() as running:
        yield running


@pytest.fixture
def api(cluster: testing.Running) -> Iterator[testing.Client]:
    """An admin client in a new namespace, which is removed afterwards."""
    with cluster.client(namespace=f"t-{uuid.uuid4().hex[:12]}") as client:
        client.call("POST", "/api/v1/namespaces", {"metadata": {"name": client.namespace}})
        yield client
        for pod in client.get("pods")["items"]:
            client.delete("pods", pod["metadata"]["name"], {"gracePeriodSeconds": 0})
        client.call("DELETE", f"/api/v1/namespaces/{client.namespace}")


@pytest.fixture
def own_cluster() -> Iterator[testing.Running]:
    """A cluster for this test alone."""
    with testing.serve() as running:
        yield running


@pytest.fixture
def own(own_cluster: testing.Running) -> Iterator[testing.Client]:
    """An admin client of this test's own cluster."""
    with own_cluster.client() as client:
        yield client
