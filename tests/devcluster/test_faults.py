"""What can be broken on demand, and that clearing a fault heals it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from penstock_lab.devcluster import garbage
from tests.devcluster import clusters as testing
from tests.devcluster import marks
from tests.devcluster.clusters import pod


def fault(api: testing.Client, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Set a fault, or clear it when there is no body."""
    return api.call("DELETE" if body is None else "PUT", f"/devcluster/v1/faults/{what}", body)


def node_ready(api: testing.Client, name: str) -> str:
    node = api.call("GET", f"/api/v1/nodes/{name}")
    return str(next(one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready"))


def waiting_reason(found: dict[str, Any]) -> str:
    states = found["status"].get("containerStatuses") or [{"state": {}}]
    return str(states[0]["state"].get("waiting", {}).get("reason", ""))


def test_unreachable_node_keeps_its_pods(own: testing.Client, tmp_path: Path) -> None:
    """While a node is NotReady, pod statuses are not updated and deletions hang; then all catches up."""
    mark = marks.new()
    script = f": {mark}; until [ -e {tmp_path}/go ]; do sleep 0.05; done; exit 3"
    volumes = [{"name": "v", "hostPath": {"path": str(tmp_path)}}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": str(tmp_path)}]}
    own.create("pods", pod("p", "sh", "-c", script, nodeName="n1", volumes=volumes, container=mounts))
    own.create("pods", pod("q", "sleep", "60", nodeName="n1", terminationGracePeriodSeconds=0))
    own.phase("p", "Running")
    own.phase("q", "Running")
    fault(own, "nodes/n1", {"ready": False})
    assert node_ready(own, "n1") == "Unknown"
    own.delete("pods", "q", {"gracePeriodSeconds": 1})
    (tmp_path / "go").touch()
    assert marks.left_over(mark) == []
    time.sleep(1.3)
    assert own.get("pods", "p")["status"]["phase"] == "Running"
    assert "deletionTimestamp" in own.get("pods", "q")["metadata"]
    fault(own, "nodes/n1")
    assert node_ready(own, "n1") == "True"
    assert own.phase("p", "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    own.gone("q")


def test_pod_bound_to_an_unreachable_node_waits(own: testing.Client) -> None:
    """It starts when the node is back."""
    fault(own, "nodes/n1", {"ready": False})
    own.create("pods", pod("p", "true", nodeName="n1"))
    time.sleep(0.2)
    before = own.get("pods", "p")
    assert before["status"]["phase"] == "Pending"
    fault(own, "nodes/n1")
    own.phase("p", "Succeeded")
    query = {"watch": "1", "resourceVersion": before["metadata"]["resourceVersion"], "timeoutSeconds": "1"}
    lines = own.http.get(own.path("pods"), params=query).text.splitlines()
    seen = [json.loads(line)["object"]["status"] for line in lines]
    assert seen
    assert all(status["startTime"] for status in seen)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_forced_deletion_on_an_unreachable_node_leaves_the_process(
    own: testing.Client, tmp_path: Path
) -> None:
    """The object can be forced away; the process ends when the node is back, as after a partition."""
    beat = tmp_path / "beat"
    volumes = [{"name": "v", "hostPath": {"path": str(tmp_path)}}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    mark = marks.new()
    script = f": {mark}; while :; do date +%s%N > /v/beat; sleep 0.05; done"
    own.create("pods", pod("p", "sh", "-c", script, nodeName="n1", volumes=volumes, container=mounts))
    own.phase("p", "Running")
    fault(own, "nodes/n1", {"ready": False})
    own.delete("pods", "p", {"gracePeriodSeconds": 0})
    assert own.get("pods", "p")["code"] == 404
    wait_for_a_beat(beat)
    assert marks.carriers(mark)
    fault(own, "nodes/n1")
    assert marks.left_over(mark) == []


def wait_for_a_beat(path: Path) -> None:
    """Until somebody writes this file."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    end = time.monotonic() + marks.SECONDS
    while not path.exists() or path.stat().st_mtime_ns == before:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_pods_of_deleted_node_are_stopped(own: testing.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubectl delete node: the kubelet still runs and stops its pods when they are collected."""
    monkeypatch.setattr(garbage, "ORPHAN_DELAY", 0.5)
    mark = marks.new()
    own.create("pods", pod("p", "sh", "-c", f": {mark}; while :; do sleep 0.05; done", nodeName="n2"))
    own.phase("p", "Running")
    own.call("DELETE", "/api/v1/nodes/n2")
    own.gone("p")
    assert marks.left_over(mark) == []


def test_gone_node_loses_its_pods(own: testing.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Node object disappears, then the pods that were on it; clearing the fault brings the node back,
    empty.
    """
    monkeypatch.setattr(garbage, "ORPHAN_DELAY", 2.0)
    own.create("pods", pod("p", "sleep", "60", nodeName="n2"))
    own.phase("p", "Running")
    fault(own, "nodes/n2", {"gone": True})
    assert own.call("GET", "/api/v1/nodes/n2")["code"] == 404
    assert own.get("pods", "p")["kind"] == "Pod"
    own.gone("p")
    fault(own, "nodes/n2")
    assert node_ready(own, "n2") == "True"
    own.create("pods", pod("p", "true", nodeName="n2"))
    own.phase("p", "Succeeded")


def test_rejecting_node(own: testing.Client) -> None:
    """A bound pod is refused with the reason that was set."""
    fault(own, "nodes/n1", {"reject": "OutOfcpu"})
    own.create("pods", pod("p", "true", nodeName="n1"))
    assert own.phase("p", "Failed")["status"]["reason"] == "OutOfcpu"
    own.create("pods", pod("q", "true", nodeName="n2"))
    own.phase("q", "Succeeded")


def test_missing_image(own: testing.Client) -> None:
    """The container waits with ErrImagePull, then ImagePullBackOff, and starts when the image is there."""
    fault(own, "images", {"missing": ["registry/none:1"]})
    own.create("pods", pod("p", "true", container={"image": "registry/none:1"}))
    own.until(lambda found: waiting_reason(found) == "ErrImagePull", "pods", "p")
    found = own.until(lambda found: waiting_reason(found) == "ImagePullBackOff", "pods", "p")
    assert found["status"]["phase"] == "Pending"
    fault(own, "images")
    own.phase("p", "Succeeded")


def test_pod_waiting_for_image_can_be_deleted(own: testing.Client) -> None:
    """Nothing runs, so the deletion does not wait."""
    fault(own, "images", {"missing": ["none"]})
    own.create("pods", pod("p", "true", container={"image": "none"}))
    own.until(lambda found: waiting_reason(found) == "ImagePullBackOff", "pods", "p")
    own.delete("pods", "p")
    assert own.gone("p", patience=20)["reason"] == "NotFound"


def test_pod_stuck_terminating(own: testing.Client) -> None:
    """The pod stays Terminating until the fault is cleared, finished or not."""
    for name, command in (("p", ("sleep", "60")), ("q", ("true",))):
        own.create("pods", pod(name, *command, terminationGracePeriodSeconds=1))
        own.phase(name, "Running" if name == "p" else "Succeeded")
        fault(own, f"pods/default/{name}", {"stuckTerminating": True})
        own.delete("pods", name, {"gracePeriodSeconds": 1})
    time.sleep(1.5)
    assert "deletionTimestamp" in own.get("pods", "p")["metadata"]
    assert "deletionTimestamp" in own.get("pods", "q")["metadata"]
    fault(own, "pods/default/p")
    fault(own, "pods/default/q")
    own.gone("p")
    own.gone("q")


def test_admission_fault_refuses_pods_by_label(own: testing.Client) -> None:
    """As an admission webhook would: 403 with its message; others are created."""
    fault(own, "admission", {"labels": {"rank": "1"}, "message": "not here"})
    refused = own.call("POST", own.path("pods"), labelled("p", "1"))
    assert (refused["code"], refused["reason"]) == (403, "Forbidden")
    assert "denied the request: not here" in refused["message"]
    assert own.create("pods", labelled("q", "2"))["kind"] == "Pod"
    fault(own, "admission", {})
    assert own.create("pods", labelled("p", "1"))["kind"] == "Pod"


def labelled(name: str, rank: str) -> dict[str, Any]:
    made = testing.pod(name, "true")
    made["metadata"]["labels"] = {"rank": rank}
    return made


def test_faults_are_listed_and_cleared_together(own: testing.Client) -> None:
    """GET shows all faults, DELETE without a name clears them."""
    fault(own, "nodes/n1", {"ready": False})
    fault(own, "pods/default/p", {"stuckTerminating": True})
    listed = fault(own, "images", {"missing": ["b", "a"]})
    assert listed == own.call("GET", "/devcluster/v1/faults")
    assert listed == {
        "nodes": {"n1": {"ready": False}},
        "pods": {"default/p": {"stuckTerminating": True}},
        "images": {"missing": ["a", "b"]},
        "admission": {},
    }
    own.call("DELETE", "/devcluster/v1/faults")
    none: dict[str, object] = {"nodes": {}, "pods": {}, "images": {"missing": []}, "admission": {}}
    assert own.call("GET", "/devcluster/v1/faults") == none
    assert node_ready(own, "n1") == "True"


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("nodes/n1", {"ready": "no"}),
        ("nodes/n1", {"colour": True}),
        ("nodes/n1", []),
        ("images", {"missing": "x"}),
        ("pods/default/p", {"stuck": True}),
    ],
)
def test_unknown_faults_are_refused(api: testing.Client, what: str, body: Any) -> None:
    """A fault that does not exist is a bad request which names those that do."""
    answer = api.call("PUT", f"/devcluster/v1/faults/{what}", body)
    assert answer["code"] == 400


def test_unknown_admin_paths(api: testing.Client) -> None:
    """What the admin API does not have is 404 or 405."""
    assert api.call("GET", "/devcluster/v1/nothing")["code"] == 404
    assert api.call("PUT", "/devcluster/v1/faults/moons/europa", {})["code"] == 404
    assert api.call("POST", "/devcluster/v1/faults", {})["code"] == 405
