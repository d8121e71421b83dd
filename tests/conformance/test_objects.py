"""Objects as they come back: what the API adds, changes and refuses."""

from __future__ import annotations

import pytest

from tests.conformance import client


@pytest.mark.parametrize(
    ("given", "kept"),
    [("2000m", "2"), ("0.5", "500m"), ("1.5", "1500m"), ("3", "3"), ("250m", "250m")],
)
def test_quantities_come_back_in_their_shortest_form(api: client.Client, given: str, kept: str) -> None:
    """Who compares what was sent with what is there must compare amounts."""
    resources = {"resources": {"requests": {"cpu": given}, "limits": {"cpu": given}}}
    made = api.create("pods", client.pod("p", container=resources))
    assert made["spec"]["containers"][0]["resources"]["requests"]["cpu"] == kept
    assert api.get("pods", "p")["spec"]["containers"][0]["resources"]["limits"]["cpu"] == kept


@pytest.mark.parametrize(
    ("given", "kept"), [("314572800", "314572800"), ("1024Mi", "1Gi"), ("1000M", "1G"), ("300Mi", "300Mi")]
)
def test_memory_keeps_its_kind_of_unit(api: client.Client, given: str, kept: str) -> None:
    """Powers of two stay so, plain numbers stay plain."""
    resources = {"resources": {"requests": {"memory": given}}}
    made = api.create("pods", client.pod("p", container=resources))
    assert made["spec"]["containers"][0]["resources"]["requests"]["memory"] == kept


def test_limits_are_requests_unless_said_otherwise(api: client.Client) -> None:
    """A container with limits alone requests as much."""
    made = api.create(
        "pods", client.pod("p", container={"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}})
    )
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


def test_second_creation_already_exists(api: client.Client) -> None:
    """409 AlreadyExists, which we treat as existing."""
    first = api.create("pods", client.pod("p"))
    answer = api.create("pods", client.pod("p"))
    assert (answer["code"], answer["reason"]) == (409, "AlreadyExists")
    assert api.get("pods", "p")["metadata"]["uid"] == first["metadata"]["uid"]


def test_a_namespace_can_be_used_as_soon_as_it_is_made(api: client.Client) -> None:
    """The first job of a user makes namespace and pod in one breath."""
    name = f"{api.namespace}-new"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    made = api.call("POST", f"/api/v1/namespaces/{name}/pods", client.pod("at-once"))
    api.call("DELETE", f"/api/v1/namespaces/{name}")
    assert made["kind"] == "Pod"


def test_defaults_are_set(api: client.Client) -> None:
    """The defaults that matter to us, with the values that we rely on."""
    spec = api.create("pods", client.pod("p"))["spec"]
    assert spec["serviceAccountName"] == "default"
    assert spec["dnsPolicy"] == "ClusterFirst"
    container = spec["containers"][0]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["terminationMessagePath"] == "/dev/termination-log"


def test_no_token_without_automount(api: client.Client, node: str) -> None:
    """automountServiceAccountToken: false leaves the pod without any credential of the cluster."""
    made = api.create("pods", client.shell("p", "test ! -e /var/run/secrets/kubernetes.io"))
    assert "volumes" not in made["spec"]
    api.bind("p", node)
    assert client.terminated(api.phase("p", "Succeeded", "Failed"))["exitCode"] == 0


def test_an_immutable_secret_stays(api: client.Client) -> None:
    """Nobody can change a job's script behind its back."""
    body = {"metadata": {"name": "s"}, "immutable": True, "stringData": {"a": "1"}}
    api.create("secrets", body)
    patch = {"stringData": {"a": "2"}}
    answer = api.call("PATCH", api.path("secrets", "s"), patch, kind="application/merge-patch+json")
    assert (answer["code"], answer["reason"]) == (422, "Invalid")


@pytest.mark.parametrize(
    "change",
    [
        {"containers": []},
        {"restartPolicy": "Sometimes"},
        {"containers": [{"name": "Not A Name", "image": "x"}]},
    ],
)
def test_an_impossible_pod_is_invalid(api: client.Client, change: client.Json) -> None:
    """422 with a message that names the field."""
    body = client.pod("p")
    body["spec"].update(change)
    answer = api.create("pods", body)
    assert (answer["code"], answer["reason"]) == (422, "Invalid")
    assert "spec." in answer["message"]
