"""The doctor's probe pod resembles a job's pod: namespace, Secrets, user."""

from __future__ import annotations

import os
from typing import Any

import pytest

from penstock import errors, wellknown
from penstock.doctor import all_checks, checks, probepod
from penstock.doctor.live import Live
from penstock.model import cluster
from penstock.site import schema
from tests.install import clusters, sites
from tests.unit import fakes

SECRETS = ("  default_image:", "  pull_secrets: [regcred]\n  default_image:")
CLAIM = ("  drop: slurm-jobs\n", "  drop: slurm-jobs\n  claim: nas\n")
NOT_IN_PODS = ("  drop: slurm-jobs\n", "  in_pods: false\n  shared_mounts: [/scratch]\n")
OURS = "penstock-system"
USERS = {"labels": {wellknown.LABEL_USER_ID: "1001"}}


class FakeCluster(clusters.Cluster):
    """Has these objects; pods end at once."""

    def __init__(self, *objects: str, exit_code: int = 0, events: tuple[dict[str, str], ...] = ()) -> None:
        self.objects = objects
        self.exit_code = exit_code
        self.events = events
        self.pods: dict[str, Any] = {}

    def request(self, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
        if method == "POST":
            self.pods[f"{path}/{body['metadata']['name']}"] = body
            return {}
        if method == "GET" and path.endswith("/events"):
            return {"items": list(self.events)}
        if method == "GET" and path in self.pods and self.events:
            return {"metadata": {"namespace": "x", "uid": "u"}, "status": {"phase": "Pending"}}
        if method == "GET" and path in self.pods:
            state = {"terminated": {"exitCode": self.exit_code}}
            phase = "Failed" if self.exit_code else "Succeeded"
            return {"status": {"phase": phase, "containerStatuses": [{"name": "job", "state": state}]}}
        if method == "GET" and path not in self.objects:
            raise errors.KubeNotFound(f"{path} not found")
        return {"metadata": {}}


def probed(site: schema.Site, kube: FakeCluster, *homes: str) -> tuple[checks.Result, dict[str, Any]]:
    """The check's result, and the pod that it created."""
    live = Live(site)
    namespaces = {
        name: {"metadata": {"name": name, **(USERS if name.startswith("user-") else {})}} for name in homes
    }
    known = {
        "cluster": kube,
        "kube_nodes": {"n1": fakes.node()},
        "bridged_nodes": {"n1": cluster.NodeSpec(name="n1", port=0)},
        "namespaces": namespaces,
    }
    live.answers |= {name: (answer, None) for name, answer in known.items()}
    (result,) = checks.run(all_checks.PROBES, live)
    return result, next(iter(kube.pods.values()), {})


def test_pod_runs_in_a_namespace_with_the_pull_secrets() -> None:
    """Penstock's own namespace, as for prepulled images, comes before users' namespaces."""
    ours, users = (f"/api/v1/namespaces/{home}/secrets/regcred" for home in (OURS, "user-bob"))
    for there, home in (((ours, users), OURS), ((users,), "user-bob")):
        result, pod = probed(
            sites.site(SECRETS), FakeCluster(*there), OURS, "user-alice", "user-bob", "default"
        )
        assert (result.status, pod["metadata"]["namespace"]) == ("ok", home)
        assert pod["spec"]["imagePullSecrets"] == [{"name": "regcred"}]


def test_pod_runs_in_a_namespace_with_the_claim_of_the_nas() -> None:
    """Users' namespaces have one, Penstock's does not."""
    kube = FakeCluster("/api/v1/namespaces/user-bob/persistentvolumeclaims/nas")
    result, pod = probed(sites.site(CLAIM), kube, OURS, "user-bob")
    assert (result.status, pod["metadata"]["namespace"]) == ("ok", "user-bob")


def test_check_is_skipped_without_the_pull_secrets() -> None:
    """A pod without them would prove nothing about the image."""
    result, pod = probed(sites.site(SECRETS), FakeCluster(), OURS, "user-bob", "default")
    assert (result.status, pod) == ("skipped", {})
    assert "Secret regcred" in result.message


@pytest.mark.parametrize(("homes", "home"), [((OURS, "default"), OURS), (("user-bob", "default"), "default")])
def test_pod_that_needs_nothing_runs_in_penstocks_namespace(homes: tuple[str, ...], home: str) -> None:
    """A lab has none, and a user's namespace may have a quota."""
    _, pod = probed(sites.site(), FakeCluster(), *homes)
    assert pod["metadata"]["namespace"] == home
    assert "imagePullSecrets" not in pod["spec"]


@pytest.mark.parametrize(("caller", "user"), [(0, 65534), (1001, 1001)])
def test_pod_never_runs_as_root(monkeypatch: pytest.MonkeyPatch, caller: int, user: int) -> None:
    """With root_squash root cannot write what users can; everybody may write the drop folder."""
    monkeypatch.setattr(os, "getuid", lambda: caller)
    monkeypatch.setattr(os, "getgid", lambda: caller)
    _, pod = probed(sites.site(), FakeCluster(), OURS)
    context = pod["spec"]["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (user, user, True)
    assert (
        f"touch /nas/slurm-jobs/submit/.{pod['metadata']['name']} "
        in pod["spec"]["containers"][0]["command"][2]
    )


def test_shared_mounts_are_only_mounted() -> None:
    """The permissions in them are unknown."""
    _, pod = probed(sites.site(NOT_IN_PODS), FakeCluster(), OURS)
    container = pod["spec"]["containers"][0]
    assert (container["command"][2], container["volumeMounts"][0]["mountPath"]) == ("true", "/scratch")


def test_nas_that_users_cannot_write_is_reported() -> None:
    result, _ = probed(sites.site(), FakeCluster(exit_code=3), OURS)
    assert (result.status, result.message) == (
        "failed",
        "users cannot write to the NAS's drop folder in a pod on n1",
    )
    assert "read-write" in result.remedy


def test_warning_events_of_a_pod_that_does_not_start_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probepod, "SECONDS", 0.0)
    warning = {"type": "Warning", "reason": "FailedMount", "message": "/nas is not a directory"}
    result, _ = probed(sites.site(), FakeCluster(events=(warning,)), OURS)
    assert (result.status, result.message) == (
        "failed",
        "a pod on n1 did not run: FailedMount: /nas is not a directory",
    )
    assert "mount the folder on the node" in result.remedy
