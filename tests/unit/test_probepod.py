"""The doctor's pod is as much like a job's as it can be: its namespace, its Secrets, its user."""

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
    """Some objects, and pods that end at once."""

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
    """How the check came out, and the pod that it made."""
    live = Live(site)
    namespaces = {name: {"metadata": USERS if name.startswith("user-") else {}} for name in homes}
    known = {
        "cluster": kube,
        "kube_nodes": {"n1": fakes.node()},
        "bridged_nodes": {"n1": cluster.NodeSpec(name="n1", port=0)},
        "namespaces": namespaces,
    }
    live.answers |= {name: (answer, None) for name, answer in known.items()}
    (result,) = checks.run(all_checks.PROBES, live)
    return result, next(iter(kube.pods.values()), {})


def test_it_goes_where_the_secrets_are() -> None:
    """Penstock's own namespace, as for prepulled images, before a user's."""
    ours, users = (f"/api/v1/namespaces/{home}/secrets/regcred" for home in (OURS, "user-bob"))
    for there, home in (((ours, users), OURS), ((users,), "user-bob")):
        result, pod = probed(
            sites.site(SECRETS), FakeCluster(*there), OURS, "user-alice", "user-bob", "default"
        )
        assert (result.status, pod["metadata"]["namespace"]) == ("ok", home)
        assert pod["spec"]["imagePullSecrets"] == [{"name": "regcred"}]


def test_it_goes_where_the_claim_of_the_nas_is() -> None:
    """Users' namespaces get one, ours does not."""
    kube = FakeCluster("/api/v1/namespaces/user-bob/persistentvolumeclaims/nas")
    result, pod = probed(sites.site(CLAIM), kube, OURS, "user-bob")
    assert (result.status, pod["metadata"]["namespace"]) == ("ok", "user-bob")


def test_without_the_secrets_it_is_skipped_in_words() -> None:
    """A pod without them would prove nothing about the image."""
    result, pod = probed(sites.site(SECRETS), FakeCluster(), OURS, "user-bob", "default")
    assert (result.status, pod) == ("skipped", {})
    assert "Secret regcred" in result.message


@pytest.mark.parametrize(("homes", "home"), [((OURS, "default"), OURS), (("user-bob", "default"), "default")])
def test_a_pod_that_needs_nothing_goes_to_our_namespace(homes: tuple[str, ...], home: str) -> None:
    """A lab has none, and a user's may have a quota."""
    _, pod = probed(sites.site(), FakeCluster(), *homes)
    assert pod["metadata"]["namespace"] == home
    assert "imagePullSecrets" not in pod["spec"]


@pytest.mark.parametrize(("caller", "user"), [(0, 65534), (1001, 1001)])
def test_it_is_never_root(monkeypatch: pytest.MonkeyPatch, caller: int, user: int) -> None:
    """With root_squash root cannot write what users can; what everybody may write is the drop folder."""
    monkeypatch.setattr(os, "getuid", lambda: caller)
    monkeypatch.setattr(os, "getgid", lambda: caller)
    _, pod = probed(sites.site(), FakeCluster(), OURS)
    context = pod["spec"]["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (user, user, True)
    assert (
        f"touch /nas/slurm-jobs/submit/.{pod['metadata']['name']} "
        in pod["spec"]["containers"][0]["command"][2]
    )


def test_a_folder_that_not_everybody_may_write_is_only_mounted() -> None:
    """Nothing is known of the rights in shared_mounts."""
    _, pod = probed(sites.site(NOT_IN_PODS), FakeCluster(), OURS)
    container = pod["spec"]["containers"][0]
    assert (container["command"][2], container["volumeMounts"][0]["mountPath"]) == ("true", "/scratch")


def test_a_nas_that_users_cannot_write_is_told() -> None:
    """With what to do."""
    result, _ = probed(sites.site(), FakeCluster(exit_code=3), OURS)
    assert (result.status, result.message) == (
        "failed",
        "users cannot write the NAS's drop folder in a pod on n1",
    )
    assert "read-write" in result.remedy


def test_what_keeps_the_pod_from_starting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster's own words, such as those about a folder that cannot be mounted."""
    monkeypatch.setattr(probepod, "SECONDS", 0.0)
    warning = {"type": "Warning", "reason": "FailedMount", "message": "/nas is not a directory"}
    result, _ = probed(sites.site(), FakeCluster(events=(warning,)), OURS)
    assert (result.status, result.message) == (
        "failed",
        "a pod on n1 did not run: FailedMount: /nas is not a directory",
    )
    assert "mount the folder on the node" in result.remedy
