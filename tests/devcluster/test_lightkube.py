"""The client library of the project against the dev cluster: typed objects, apply, watch, logs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lightkube import Client
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.core.exceptions import ApiError
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace, Node, Pod
from lightkube.types import CascadeType, PatchType

from tests.devcluster import clusters as testing


@pytest.fixture
def client(cluster: testing.Running, api: testing.Client) -> Iterator[Client]:
    """lightkube with a token, in the test's own namespace."""
    config = KubeConfig.from_one(
        cluster=Cluster(server=cluster.url),
        user=User(token=cluster.token),
        namespace=api.namespace,
        context_name="test",
    )
    with Client(config, field_manager="tests") as made:
        yield made


def make_pod(name: str, *command: str) -> Pod:
    spec = PodSpec(
        containers=[Container(name="c", image="any", command=list(command))], restartPolicy="Never"
    )
    return Pod(metadata=ObjectMeta(name=name, labels={"app": "x"}), spec=spec)


def test_objects_are_typed(client: Client) -> None:
    """Nodes and namespaces decode into lightkube's models."""
    nodes = list(client.list(Node))
    assert [node.metadata.name for node in nodes if node.metadata] == ["n1", "n2"]
    assert nodes[0].status is not None
    assert nodes[0].status.allocatable is not None
    assert nodes[0].status.allocatable["nvidia.com/gpu"] == "4"
    assert client.get(Namespace, "default").status is not None


def test_create_wait_log_delete(client: Client) -> None:
    """A pod's whole life through the library."""
    client.create(make_pod("p", "sh", "-c", "echo hello; exit 4"))
    for event, found in client.watch(Pod, fields={"metadata.name": "p"}, server_timeout=60):
        if event != "DELETED" and found.status and found.status.phase == "Failed":
            break
    assert found.status is not None
    assert found.status.containerStatuses is not None
    state = found.status.containerStatuses[0].state
    assert state is not None
    assert state.terminated is not None
    assert state.terminated.exitCode == 4
    assert "".join(client.log("p", follow=True)) == "hello\n"
    client.delete(Pod, "p", cascade=CascadeType.FOREGROUND)
    with pytest.raises(ApiError) as refused:
        client.get(Pod, "p")
    assert (refused.value.status.code, refused.value.status.reason) == (404, "NotFound")


def test_apply_and_patch(client: Client) -> None:
    """Server-side apply removes what is no longer applied and leaves what others wrote."""
    meta = ObjectMeta(name="m")
    client.apply(ConfigMap(metadata=meta, data={"a": "1", "b": "2"}))
    client.patch(ConfigMap, "m", {"data": {"c": "3"}}, patch_type=PatchType.MERGE)
    found = client.apply(ConfigMap(metadata=meta, data={"a": "1"}))
    assert found.data == {"a": "1", "c": "3"}


def test_lists_in_pages(client: Client) -> None:
    """The library's paging sees everything once."""
    for number in range(7):
        client.create(ConfigMap(metadata=ObjectMeta(name=f"c{number}")))
    found = [one.metadata.name for one in client.list(ConfigMap, chunk_size=3) if one.metadata]
    assert found == [f"c{number}" for number in range(7)]


def test_set_and_replace(client: Client) -> None:
    """Replacing from an old version is a conflict."""
    made = client.create(ConfigMap(metadata=ObjectMeta(name="m"), data={"a": "1"}))
    made.data = {"a": "2"}
    client.replace(made)
    with pytest.raises(ApiError) as refused:
        client.replace(made)
    assert refused.value.status.reason == "Conflict"
