"""A real kubectl against the dev cluster, over TLS as the lab runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.devcluster import clusters as testing

pytestmark = [pytest.mark.needs("kubectl", package="kubernetes-client"), pytest.mark.needs("openssl")]
Kubectl = Callable[..., str]

POD = """
apiVersion: v1
kind: Pod
metadata: {name: %(name)s, labels: {app: demo}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "any:1", command: [sh, -c, "%(script)s"]}
"""


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cluster with TLS, and the file that leads kubectl to it."""
    home = tmp_path_factory.mktemp("kubectl")
    port = testing.free_port()
    argv = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    argv += ["-keyout", str(home / "key"), "-out", str(home / "crt"), "-subj", "/CN=127.0.0.1"]
    argv += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    (home / "tokens").write_text("secret-token,admin,admin\n")
    (home / "nodes").write_text(
        '[{"name": "n1", "cpus": 4, "memory_mb": 2048}, {"name": "n2", "cpus": 4, "memory_mb": 2048}]'
    )
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(home / "crt")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "secret-token"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (home / "config").write_text(json.dumps(config))
    argv = [
        sys.executable,
        "-m",
        "penstock_lab.devcluster",
        "--data-dir",
        str(home / "data"),
        "--port",
        str(port),
    ]
    argv += ["--tls-cert", str(home / "crt"), "--tls-key", str(home / "key")]
    argv += ["--tokens", str(home / "tokens"), "--nodes", str(home / "nodes")]
    server = subprocess.Popen(argv)
    try:
        yield home / "config"
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture
def kubectl(kubeconfig: Path, tmp_path: Path) -> Iterator[Kubectl]:
    """Run kubectl; the answer is what it printed. Pods and config maps of the test are removed."""
    env = {"KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent), "PATH": os.environ["PATH"]}

    def run(*words: str, text: str = "", check: bool = True) -> str:
        argv = ["kubectl", *words]
        done = subprocess.run(
            argv, env=env, input=text, capture_output=True, text=True, timeout=120, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout if done.returncode == 0 else done.stderr

    for _ in range(600):
        if run("get", "--raw", "/readyz", check=False) == "ok":
            break
        time.sleep(0.05)
    yield run
    run("delete", "pods,configmaps,secrets", "--all", "--force", "--grace-period=0")


def wait_for_phase(kubectl: Kubectl, name: str, phase: str) -> None:
    """Older kubectl cannot wait for a field."""
    end = time.monotonic() + 60
    while (found := kubectl("get", "pod", name, "-o", "jsonpath={.status.phase}")) != phase:
        assert time.monotonic() < end, found
        time.sleep(0.05)


def test_get_prints_the_usual_columns(kubectl: Kubectl) -> None:
    """Columns, STATUS and -o wide are those of a real cluster."""
    kubectl("apply", "-f", "-", text=POD % {"name": "p", "script": "exit 3"})
    wait_for_phase(kubectl, "p", "Failed")
    lines = kubectl("get", "pods").splitlines()
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert lines[1].split()[:4] == ["p", "0/1", "Error", "0"]
    assert "n1" in kubectl("get", "pods", "-o", "wide").splitlines()[1].split()
    assert kubectl("get", "po", "-l", "app=demo", "-o", "name") == "pod/p\n"
    assert "Ready" in kubectl("get", "nodes")
    assert "default" in kubectl("get", "ns")


def test_apply_twice_then_change(kubectl: Kubectl) -> None:
    """Client-side apply creates, then finds nothing to do, then patches."""
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: '1', b: '2'}\n"
    assert "created" in kubectl("apply", "-f", "-", text=text)
    assert "unchanged" in kubectl("apply", "-f", "-", text=text)
    assert "configured" in kubectl("apply", "-f", "-", text=text.replace(", b: '2'", ""))
    assert json.loads(kubectl("get", "cm", "m", "-o", "json"))["data"] == {"a": "1"}


def test_server_side_apply(kubectl: Kubectl) -> None:
    """Another manager that wants another value gets a conflict, and wins by force."""
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: '%s'}\n"
    kubectl("apply", "--server-side", "--field-manager=one", "-f", "-", text=text % 1)
    other = ("apply", "--server-side", "--field-manager=two", "-f", "-")
    assert 'conflict with "one": .data.a' in kubectl(*other, text=text % 2, check=False)
    kubectl(*other, "--force-conflicts", text=text % 2)
    assert json.loads(kubectl("get", "cm", "m", "-o", "json"))["data"] == {"a": "2"}


def test_create_sub_commands(kubectl: Kubectl) -> None:
    """kubectl's own generators send protobuf; they work for the kinds people use them for."""
    kubectl("create", "secret", "generic", "s", "--from-literal=key=value")
    kubectl("create", "configmap", "m", "--from-literal=key=value")
    kubectl("create", "namespace", "made-by-kubectl")
    assert kubectl("get", "secret", "s", "-o", "jsonpath={.data.key}") == "dmFsdWU="
    assert kubectl("get", "cm", "m", "-o", "jsonpath={.data.key}") == "value"
    kubectl("delete", "namespace", "made-by-kubectl")
    assert "already exists" in kubectl("create", "configmap", "m", check=False)


def test_logs_follow_to_the_end(kubectl: Kubectl) -> None:
    """logs -f ends with the container and has its last line."""
    kubectl("create", "-f", "-", text=POD % {"name": "p", "script": "echo a; sleep 1; echo z"})
    end = time.monotonic() + 60
    while not kubectl("logs", "p", check=False).startswith("a\n"):
        assert time.monotonic() < end
    assert kubectl("logs", "-f", "p") == "a\nz\n"
    assert kubectl("logs", "p", "--tail=1") == "z\n"


def test_delete_waits_until_the_pod_is_gone(kubectl: Kubectl) -> None:
    """delete returns when the object is gone, and wait --for=delete agrees."""
    kubectl("create", "-f", "-", text=POD % {"name": "p", "script": "sleep 60"})
    kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
    assert "deleted" in kubectl("delete", "pod", "p")
    assert "not found" in kubectl("get", "pod", "p", check=False)


def test_patch_label_annotate(kubectl: Kubectl) -> None:
    """All three kinds of patch, and the commands built on them."""
    kubectl("create", "configmap", "m")
    kubectl("patch", "cm", "m", "--type=merge", "-p", '{"data": {"a": "1"}}')
    kubectl("patch", "cm", "m", "--type=json", "-p", '[{"op": "add", "path": "/data/b", "value": "2"}]')
    kubectl("patch", "cm", "m", "-p", '{"data": {"c": "3"}}')
    kubectl("label", "cm", "m", "colour=red")
    kubectl("annotate", "cm", "m", "note=hello")
    found = json.loads(kubectl("get", "cm", "m", "-o", "json"))
    assert found["data"] == {"a": "1", "b": "2", "c": "3"}
    assert found["metadata"]["labels"] == {"colour": "red"}


def test_describe(kubectl: Kubectl) -> None:
    """describe finds the pod's events and the node's pods."""
    kubectl("create", "-f", "-", text=POD % {"name": "p", "script": "exit 3"})
    wait_for_phase(kubectl, "p", "Failed")
    text = kubectl("describe", "pod", "p")
    assert "Exit Code:    3" in text
    assert "Successfully assigned default/p to n1" in text
    assert "nodes are available" not in text
    assert "Capacity:" in kubectl("describe", "node", "n1")


def test_cordon_and_drain(kubectl: Kubectl) -> None:
    """A cordoned node gets no pods; drain evicts those that are there."""
    kubectl("create", "-f", "-", text=POD % {"name": "p", "script": "sleep 60"})
    kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
    try:
        kubectl("drain", "n1", "--force", "--dry-run=server")
        assert "deletionTimestamp" not in json.loads(kubectl("get", "pod", "p", "-o", "json"))["metadata"]
        assert "evicted" in kubectl("drain", "n1", "--force", "--timeout=90s")
        assert "SchedulingDisabled" in kubectl("get", "node", "n1")
        assert kubectl("get", "pods", "-o", "name") == ""
    finally:
        kubectl("uncordon", "n1")
    assert "SchedulingDisabled" not in kubectl("get", "node", "n1")


def test_kubectl_prints_server_errors(kubectl: Kubectl) -> None:
    """kubectl prints the server's reasons."""
    assert 'pods "none" not found' in kubectl("get", "pod", "none", check=False)
    assert "is invalid" in kubectl(
        "create", "-f", "-", text=POD % {"name": "Bad", "script": "x"}, check=False
    )
    assert "doesn't have a resource type" in kubectl("get", "teapots", check=False)


def test_custom_resources(kubectl: Kubectl) -> None:
    """A definition makes a new kind that get, apply and delete understand."""
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "widgets", "kind": "Widget", "singular": "widget"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True}],
        },
    }
    kubectl("apply", "-f", "-", text=json.dumps(definition))
    kubectl("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=60s")
    widget = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {"size": 1},
    }
    kubectl("apply", "-f", "-", text=json.dumps(widget))
    assert "w" in kubectl("get", "widgets")
    kubectl("delete", "crd", "widgets.example.com")
