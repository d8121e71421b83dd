"""Binding: pods with our scheduler's name wait for us, and run where we say."""

from __future__ import annotations

import time

from tests.conformance import client


def test_unbound_pods_stay_pending(api: client.Client) -> None:
    """Unbound it stays Pending, on no node."""
    api.create("pods", client.pod("waiting"))
    time.sleep(1.5)
    found = api.get("pods", "waiting")
    assert found["status"]["phase"] == "Pending"
    assert "nodeName" not in found["spec"]


def test_a_bound_pod_runs_on_its_node(api: client.Client, node: str) -> None:
    """The answer is a Status of success, the pod says where it is and that it was scheduled."""
    api.create("pods", client.shell("bound", "exit 0"))
    answer = api.bind("bound", node)
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    found = api.phase("bound", "Succeeded")
    assert found["spec"]["nodeName"] == node
    conditions = {item["type"]: item["status"] for item in found["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"


def test_second_binding_is_a_conflict(api: client.Client, node: str) -> None:
    """Also to the same node."""
    api.create("pods", client.shell("twice", "sleep 1"))
    api.bind("twice", node)
    answer = api.bind("twice", node)
    assert (answer["code"], answer["reason"]) == (409, "Conflict")


def test_binding_a_missing_pod_is_not_found(api: client.Client, node: str) -> None:
    """404 names the pod."""
    answer = api.bind("nobody", node)
    assert (answer["code"], answer["reason"]) == (404, "NotFound")


def test_secret_may_be_created_before_the_binding(api: client.Client, node: str) -> None:
    """A pod may name a Secret that is created before its binding: the order in which we create a gang."""
    volume = {"name": "v", "secret": {"secretName": "late", "defaultMode": 0o444}}
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": True}]}
    user = {"runAsUser": 1234, "runAsGroup": 1234}
    script = 'test "$(cat /v/word)" = hello && ! touch /v/word'
    api.create("pods", client.shell("p", script, volumes=[volume], container=mount, securityContext=user))
    api.create("secrets", {"metadata": {"name": "late"}, "stringData": {"word": "hello"}, "immutable": True})
    api.bind("p", node)
    assert client.terminated(api.phase("p", "Succeeded", "Failed"))["exitCode"] == 0
