"""Documents that clients read, against reviewed copies: discovery, a node, the life of a pod's status."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from penstock_lab.devcluster import discovery, kindtable, nodeobjects, podstatus, tables
from penstock_lab.devcluster.objectstore import Entry
from tests import goldens


def shown(document: Any) -> str:
    """As the golden files have it, without the time of day."""
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)


def reviewed(name: str, text: str) -> str:
    return goldens.reviewed(f"devcluster/{name}", text)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/apis", "apis.json"),
        ("/api/v1", "api-v1.json"),
        ("/openapi/v3/apis/policy/v1", "openapi-policy.json"),
    ],
)
def test_discovery(path: str, name: str) -> None:
    """What clients find out about the server."""
    text = shown(discovery.answer(path, kindtable.Registry()))
    assert text == reviewed(name, text)


def test_node() -> None:
    """A node with GPUs and labels of its own."""
    spec = nodeobjects.NodeSpec("n1", cpus=8, memory_mb=32768, gpus=4, labels={"zone": "a"})
    text = shown(nodeobjects.node_object(spec))
    assert text == reviewed("node.json", text)


def test_pod_status_over_its_lifetime() -> None:
    """Creating, running, crashed and waiting, ended: one status each."""
    pod = {"metadata": {"name": "p"}, "spec": {}, "status": {"qosClass": "Burstable"}}
    one = podstatus.ContainerState("c", "image")
    state = podstatus.PodState([one], started_at="2000-01-01T00:00:00Z")
    life = {"1 creating": podstatus.build(pod, state)}
    state.address = "127.64.0.1"
    one.run("uid/c/0")
    life["2 running"] = podstatus.build(pod, state)
    one.end(1, "Error")
    one.restarts += 1
    one.wait("CrashLoopBackOff", "back-off 10s restarting failed container=c")
    life["3 crashed"] = podstatus.build(pod, state)
    one.run("uid/c/1")
    one.end(0, "Completed")
    life["4 ended"] = podstatus.build(pod, state)
    assert shown(life) == reviewed("pod-status.json", shown(life))


def test_pod_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table that `kubectl get pods -o wide` prints."""
    monkeypatch.setattr("time.time", lambda: 946684800.0 + 90)
    container = {"state": {"running": {}}, "ready": True, "restartCount": 2}
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "creationTimestamp": "2000-01-01T00:00:00Z"},
        "spec": {"nodeName": "n1", "containers": [{}, {}]},
        "status": {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [container, container]},
    }
    text = shown(tables.table(kindtable.PODS, [Entry(kindtable.PODS, pod, b"", 7)]))
    assert text == reviewed("pod-table.json", text)
