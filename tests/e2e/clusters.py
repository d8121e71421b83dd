"""Faults on either kind of cluster: simulated on the dev cluster, real on a real one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator

from tests.e2e import breaking, semantics

from penstock_lab import spec, testing

Lab = semantics.Lab
Json = semantics.Json
LABEL = "penstock.dev/rank"


def is_real() -> bool:
    return testing.kubernetes() != spec.DEV


@contextlib.contextmanager
def refusing_rank(lab: Lab, rank: int, message: str) -> Iterator[None]:
    """The API refuses that pod of every gang, as a site's policy would."""
    if is_real():
        with _policy(lab, rank, message):
            yield
        return
    with breaking.DevCluster(lab) as cluster:
        cluster.set("admission", {"labels": {LABEL: str(rank)}, "message": message})
        yield


@contextlib.contextmanager
def _policy(lab: Lab, rank: int, message: str) -> Iterator[None]:
    """A ValidatingAdmissionPolicy; it takes effect after a moment."""
    labels = "object.metadata.labels"
    expression = f"!has({labels}) || !('{LABEL}' in {labels}) || {labels}['{LABEL}'] != '{rank}'"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    group = "admissionregistration.k8s.io/v1"
    policy = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-such-rank"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": message, "reason": "Forbidden"}],
        },
    }
    binding = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-such-rank"},
        "spec": {"policyName": "no-such-rank", "validationActions": ["Deny"]},
    }
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": [policy, binding]})
    lab.run(("kubectl", "apply", "-f", "-"), stdin=body)
    try:
        probe = json.dumps(pod("probe", node="", labels={LABEL: str(rank)}))
        argv = ("kubectl", "create", "--dry-run=server", "-f", "-")
        semantics.wait_until(
            lambda: message in lab.run(argv, stdin=probe, check=False).stderr, "the policy is obeyed"
        )
        yield
    finally:
        lab.run(("kubectl", "delete", "-f", "-"), stdin=body)


def pod(name: str, *, node: str, labels: dict[str, str] | None = None, gpus: int = 0) -> Json:
    """A foreign pod, which sleeps."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {
        "name": "c",
        "image": "lab/host-userland:1",
        "command": ["/bin/sleep", "600"],
        "resources": {"limits": limits},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


@contextlib.contextmanager
def foreign_pod(lab: Lab, name: str, *, node: str, gpus: int) -> Iterator[None]:
    """A running foreign pod; created again if its kubelet refuses it because it still counts the GPUs of an
    earlier pod.
    """
    manifest = json.dumps(pod(name, node=node, gpus=gpus))
    lab.run(("kubectl", "apply", "-f", "-"), stdin=manifest)
    argv = ("kubectl", "get", "pod", name, "-o", "jsonpath={.status.phase}")

    def runs() -> bool:
        phase = lab.run(argv).stdout
        if phase == "Failed":
            lab.run(("kubectl", "replace", "--force", "-f", "-"), stdin=manifest)
        return phase == "Running"

    try:
        semantics.wait_until(runs, f"pod {name} runs")
        yield
    finally:
        lab.run(("kubectl", "delete", "pod", name, "--wait=true"))


@contextlib.contextmanager
def without_node(lab: Lab, node: str) -> Iterator[None]:
    """Delete the node; it comes back afterwards."""
    if not is_real():
        with breaking.DevCluster(lab) as cluster:
            cluster.set(f"nodes/{node}", {"gone": True})
            yield
        return
    lab.run(("kubectl", "delete", "node", node))
    try:
        yield
    finally:
        bring_back(lab, node)


def bring_back(lab: Lab, node: str) -> None:
    """Restart the kubelet, which registers its node only at its start."""
    os.kill(pid_of(lab, f"kubelet-{node}"), signal.SIGKILL)
    testing.lab_command(lab.place, "up")


def pid_of(lab: Lab, name: str) -> int:
    """The process of a component."""
    status = json.loads(lab.penstock("lab", "status", "--format", "json", check=False).stdout)
    return next(int(part["pid"]) for part in status["components"] if part["name"] == name)


@contextlib.contextmanager
def standing_still(lab: Lab, node: str) -> Iterator[Callable[[], None]]:
    """Stop the node's kubelet unnoticed; the yielded function continues it."""
    if not is_real():
        with breaking.DevCluster(lab) as cluster:
            cluster.set(f"nodes/{node}", {"stopped": True})
            yield lambda: cluster.set(f"nodes/{node}", {})
        return
    with stopped(lab, f"kubelet-{node}") as go_on:
        yield go_on


@contextlib.contextmanager
def stopped(lab: Lab, component: str) -> Iterator[Callable[[], None]]:
    """A process of the lab stands still until the yielded function is called."""
    pid = pid_of(lab, component)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield lambda: os.kill(pid, signal.SIGCONT)
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def without_image(lab: Lab, image: str) -> Iterator[None]:
    """Make the image unpullable; a real registry does not have it."""
    if is_real():
        yield
        return
    with breaking.DevCluster(lab) as cluster:
        cluster.set("images", {"missing": [image]})
        yield


@contextlib.contextmanager
def refusing_node(lab: Lab, node: str) -> Iterator[None]:
    """Make the node's kubelet refuse every pod; possible on the dev cluster only."""
    with breaking.DevCluster(lab) as cluster:
        cluster.set(f"nodes/{node}", {"reject": "OutOfcpu"})
        yield
