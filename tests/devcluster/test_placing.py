"""Who gets where: binding, kubelet's own admission, the default scheduler, quotas."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock_lab.devcluster import garbage
from tests.devcluster import clusters as testing
from tests.devcluster.clusters import pod


def wanting(name: str, resources: dict[str, str], *command: str, **spec: Any) -> dict[str, Any]:
    """A pod that requests (and is limited to) these resources."""
    return pod(name, *(command or ("sleep", "60")), container={"resources": {"limits": resources}}, **spec)


def bind(api: testing.Client, name: str, node: str, **metadata: str) -> dict[str, Any]:
    body = {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}
    return api.call("POST", api.path("pods", f"{name}/binding"), body)


def scheduled(found: dict[str, Any]) -> dict[str, Any]:
    conditions = found["status"].get("conditions") or []
    return next((one for one in conditions if one["type"] == "PodScheduled"), {})


def test_binding_answers_success_and_starts_the_pod(api: testing.Client) -> None:
    """A pod of another scheduler waits untouched until it is bound, once."""
    api.create("pods", pod("p", "true", schedulerName="penstock"))
    time.sleep(0.1)
    assert scheduled(api.get("pods", "p")) == {}
    answer = bind(api, "p", "n2")
    assert (answer["status"], answer["code"]) == ("Success", 201)
    found = api.phase("p", "Succeeded")
    assert found["spec"]["nodeName"] == "n2"
    assert scheduled(found)["status"] == "True"
    again = bind(api, "p", "n1")
    assert again["code"] == 409
    assert again["message"] == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n2"'
    )


def test_binding_is_refused_when_it_makes_no_sense(api: testing.Client) -> None:
    """Another uid, a pod being deleted, no node name, no such pod."""
    api.create(
        "pods", {**pod("p", "true", schedulerName="x"), "metadata": {"name": "p", "finalizers": ["x.io/h"]}}
    )
    assert bind(api, "p", "n1", uid="other")["code"] == 409
    assert api.call("POST", api.path("pods", "p/binding"), {"target": {}})["code"] == 422
    api.delete("pods", "p")
    assert bind(api, "p", "n1")["code"] == 409
    assert bind(api, "none", "n1")["code"] == 404
    api.patch("pods", "p", {"metadata": {"finalizers": None}})


def test_kubelet_rejects_what_does_not_fit(own: testing.Client) -> None:
    """Bound pods beyond the node's CPUs, GPUs or memory fail with OutOf<resource>; freed room is used."""
    assert (
        "uid"
        in own.create("pods", wanting("p", {"cpu": "6", "nvidia.com/gpu": "3"}, nodeName="n1"))["metadata"]
    )
    own.phase("p", "Running")
    for name, resources in (("c", {"cpu": "3"}), ("g", {"nvidia.com/gpu": "2"}), ("m", {"memory": "33Gi"})):
        own.create("pods", wanting(name, resources, nodeName="n1"))
        found = own.phase(name, "Failed")
        assert found["status"]["reason"] == f"OutOf{next(iter(resources))}"
        assert "Node didn't have enough resource" in found["status"]["message"]
    own.delete("pods", "p", {"gracePeriodSeconds": 1})
    own.gone("p")
    own.create("pods", wanting("again", {"cpu": "8"}, "true", nodeName="n1"))
    own.phase("again", "Succeeded")


def test_kubelet_rejects_a_wrong_node(api: testing.Client) -> None:
    """A node selector counts even for a pod that was bound past the scheduler."""
    api.create("pods", pod("p", "true", nodeName="n1", nodeSelector={"kubernetes.io/hostname": "n2"}))
    assert api.phase("p", "Failed")["status"]["reason"] == "NodeAffinity"


def test_pod_on_an_unknown_node_is_collected(api: testing.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The binding is accepted, the pod stays Pending, and after a while it is removed."""
    monkeypatch.setattr(garbage, "ORPHAN_DELAY", 2.0)
    api.create("pods", pod("p", "true", schedulerName="x"))
    assert bind(api, "p", "atlantis")["status"] == "Success"
    time.sleep(0.2)
    assert api.get("pods", "p")["status"]["phase"] == "Pending"
    api.gone("p")


def test_default_scheduler_fills_the_first_node_then_the_next(own: testing.Client) -> None:
    """First fit by name; what fits nowhere is Unschedulable with an event, until room appears."""
    for name in ("a", "b", "c"):
        own.create("pods", wanting(name, {"cpu": "5"}))
    assert own.phase("a", "Running")["spec"]["nodeName"] == "n1"
    assert own.phase("b", "Running")["spec"]["nodeName"] == "n2"
    found = own.until(lambda one: scheduled(one).get("status") == "False", "pods", "c")
    assert scheduled(found)["reason"] == "Unschedulable"
    assert scheduled(found)["message"] == "0/2 nodes are available: 2 Insufficient cpu."
    events = own.get("events", fieldSelector="involvedObject.name=c")["items"]
    assert [(one["reason"], one["type"]) for one in events] == [("FailedScheduling", "Warning")]
    own.delete("pods", "a", {"gracePeriodSeconds": 0})
    own.phase("c", "Running")


def test_scheduler_respects_cordons_selectors_and_taints(own: testing.Client) -> None:
    """An unschedulable node, a selector and a NoSchedule taint each keep a pod away."""
    merge = {"content_type": "application/merge-patch+json"}
    own.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}, **merge)
    own.create("pods", pod("cordoned", "true"))
    assert own.phase("cordoned", "Succeeded")["spec"]["nodeName"] == "n2"
    own.create("pods", pod("selected", "true", nodeSelector={"kubernetes.io/hostname": "n1"}))
    own.until(lambda one: scheduled(one).get("status") == "False", "pods", "selected")
    taint = {"key": "only", "value": "gpu", "effect": "NoSchedule"}
    own.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": None, "taints": [taint]}}, **merge)
    own.create("pods", pod("tolerant", "true", tolerations=[{"key": "only", "operator": "Exists"}]))
    assert own.phase("tolerant", "Succeeded")["spec"]["nodeName"] == "n1"
    own.create("pods", pod("plain", "true"))
    assert own.phase("plain", "Succeeded")["spec"]["nodeName"] == "n2"


def test_unready_node_gets_no_pods(own: testing.Client) -> None:
    """The scheduler passes over a node that is not Ready."""
    own.call("PUT", "/devcluster/v1/faults/nodes/n1", {"ready": False})
    own.create("pods", pod("p", "true"))
    assert own.phase("p", "Succeeded")["spec"]["nodeName"] == "n2"


def quota(api: testing.Client, name: str = "q", **hard: str) -> None:
    words = {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}
    api.create("resourcequotas", {"metadata": {"name": name}, "spec": {"hard": words}})


def used(api: testing.Client, name: str = "q") -> dict[str, str]:
    found: dict[str, str] = api.get("resourcequotas", name)["status"].get("used", {})
    return found


def test_quota_refuses_in_the_words_of_the_real_server(api: testing.Client) -> None:
    """A pod beyond the quota is 403, with requested, used and limited in the message."""
    quota(api, requests_cpu="3", pods="10")
    api.create("pods", wanting("a", {"cpu": "2"}, schedulerName="x"))
    answer = api.create("pods", wanting("b", {"cpu": "1500m"}, schedulerName="x"))
    assert (answer["code"], answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=1500m, '
        "used: requests.cpu=2, limited: requests.cpu=3"
    )


def test_quota_status_follows(api: testing.Client) -> None:
    """Used amounts rise with creation and fall with deletion and completion."""
    quota(api, pods="5", requests_memory="2Gi", count__configmaps="3")
    api.create("pods", wanting("a", {"memory": "512Mi"}, schedulerName="x"))
    api.create("configmaps", {"metadata": {"name": "m"}})
    want = {"pods": "1", "requests.memory": "512Mi", "count/configmaps": "1"}
    api.until(lambda found: found["status"].get("used") == want, "resourcequotas", "q")
    api.delete("pods", "a")
    api.until(lambda found: found["status"]["used"]["pods"] == "0", "resourcequotas", "q")
    api.create("pods", wanting("done", {"memory": "64Mi"}, "true"))
    api.phase("done", "Succeeded")
    found = api.until(lambda found: found["status"]["used"]["pods"] == "0", "resourcequotas", "q")
    assert found["status"]["hard"]["pods"] == "5"


def test_quota_counts_objects_and_gpus(api: testing.Client) -> None:
    """count/ limits hold for any kind, requests.nvidia.com/gpu for pods."""
    hard = {"count/secrets": "1", "requests.nvidia.com/gpu": "2", "limits.cpu": "4"}
    api.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    api.create("secrets", {"metadata": {"name": "one"}})
    assert api.create("secrets", {"metadata": {"name": "two"}})["code"] == 403
    answer = api.create("pods", wanting("g", {"nvidia.com/gpu": "3", "cpu": "1"}))
    assert "requested: requests.nvidia.com/gpu=3, used: requests.nvidia.com/gpu=0" in answer["message"]


def test_quota_on_compute_obliges_to_say_how_much(api: testing.Client) -> None:
    """Under a CPU quota a container that says nothing of CPU is refused."""
    quota(api, requests_cpu="3")
    answer = api.create("pods", pod("p", "true"))
    assert answer["message"].endswith("failed quota: q: must specify requests.cpu for: c")
