"""Settings of containerd, kubelet and the API server, compared with tests/golden."""

from __future__ import annotations

import contextlib
import csv
import json
import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from penstock import errors
from penstock.kube import client, kinds, kubeconfig
from penstock.render import rbac
from penstock_lab.kubernetes import authority, bootstrap, controlplane, machines, registry
from tests import goldens
from tests.unit.test_kubernetes_layout import cluster


def reviewed(name: str, text: str) -> str:
    return goldens.reviewed(f"kubernetes/{name}", text)


def pretty(content: Any) -> str:
    return json.dumps(content, indent=2) + "\n"


def test_containerds_settings() -> None:
    """All of a node's containerd is in the node's directory."""
    text = machines.render_containerd(cluster().machines[0], "overlayfs")
    assert text == reviewed("containerd.toml", text)
    read = tomllib.loads(text)
    plugin = read["plugins"]["io.containerd.grpc.v1.cri"]
    assert plugin["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is False
    assert plugin["netns_mounts_under_state_dir"] is True


def test_kubelets_settings() -> None:
    """Its own cgroup root, nothing written to the host's iptables, no eviction by the host's disk."""
    config = machines.render_kubelet(cluster().machines[1])
    assert pretty(config) == reviewed("kubelet.json", pretty(config))
    assert config["cgroupRoot"] == "/penstock-k8s-26002-9bcc2192/n2"
    assert config["makeIPTablesUtilChains"] is False


def test_the_registrys_files() -> None:
    """The site's registry name resolves to loopback only."""
    settings = registry.render_settings(cluster())
    assert settings == reviewed("registry.json", settings)
    text = registry.render_hosts(cluster())
    assert text == reviewed("hosts.toml", text)
    assert list(tomllib.loads(text)["host"]) == [f"http://127.0.0.1:{cluster().registry_port}"]


def test_a_nodes_network() -> None:
    """Addresses are kept in the node's directory."""
    text = pretty(machines.render_network(cluster().machines[0]))
    assert text == reviewed("network.json", text)


def test_the_control_planes_command_lines() -> None:
    lines = ["\n  ".join(part.argv) for part in controlplane.all_components(cluster())]
    text = "\n\n".join(lines) + "\n"
    assert text == reviewed("control-plane.txt", text)


@pytest.mark.parametrize(
    ("name", "manifest"),
    [
        ("penstockd-role.json", rbac.render_role()),
        ("penstockd-binding.json", rbac.render_binding(rbac.service_account("penstockd", "penstock"))),
        ("user-role.json", rbac.render_user_role()),
        ("viewer-role.json", bootstrap.viewer_role()),
        ("audit-policy.json", controlplane.audit_policy()),
    ],
)
def test_roles_and_policies(name: str, manifest: dict[str, Any]) -> None:
    assert pretty(manifest) == reviewed(name, pretty(manifest))


def test_tokens_name_user_and_group() -> None:
    """The API server's file: token, user, uid, groups; only one is an administrator."""
    who = authority.identities(cluster())
    tokens = {role: f"t-{role}" for role in who}
    rows = list(csv.reader(authority.render_tokens(tokens, who).splitlines()))
    assert [row[1] for row in rows if row[3] == "system:masters"] == ["admin"]
    assert ["t-n1", "system:node:n1", "n1", "system:nodes"] in rows
    assert {row[1] for row in rows if row[3] == ""} >= {"penstockd", "viewer"}
    assert len({row[0] for row in rows}) == len(rows)


@pytest.mark.parametrize("pair", rbac.pairs(), ids="-".join)
def test_a_right_can_be_left_out(pair: tuple[str, str]) -> None:
    """Exactly this one is missing."""
    rules = rbac.render_role(without=pair)["rules"]
    left = [
        (f"{rule['resources'][0]}.{rule['apiGroups'][0]}".rstrip("."), verb)
        for rule in rules
        for verb in rule["verbs"]
    ]
    assert sorted([*left, pair]) == sorted(rbac.pairs())


def test_penstockd_reads_no_secret_and_changes_nothing_that_exists() -> None:
    """As the role's description says."""
    verbs = dict(rbac.RULES)
    assert verbs["secrets"] == ("create",)
    assert not {verb for _, verb in rbac.pairs()} & {"update", "patch", "deletecollection", "*"}


def test_a_nodes_status_is_completed() -> None:
    """A loopback address that no kubelet would report, and GPUs without a device plugin."""
    status = bootstrap.node_status("n1", gpus=4)
    assert status["addresses"][0] == {"type": "InternalIP", "address": "127.0.0.1"}
    assert status["capacity"] == status["allocatable"] == {"nvidia.com/gpu": "4"}


@pytest.mark.parametrize("conflicts", [0, 1, bootstrap.TRIES])
async def test_taint_patch_does_not_overwrite_the_controllers_change(
    conflicts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is removed from the node as read, or the node is read again."""
    not_ready = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    clouds = {"key": bootstrap.UNINITIALIZED, "effect": "NoSchedule"}
    node: dict[str, Any] = {"metadata": {"resourceVersion": "1"}, "spec": {"taints": [clouds, not_ready]}}
    left = [conflicts]

    class Kube(client.KubeClient):
        async def get(self, kind: kinds.Kind, **place: Any) -> bytes:
            return msgspec.json.encode(node)

        async def patch(self, kind: kinds.Kind, changes: Mapping[str, Any], **place: Any) -> bytes:
            if left[0]:  # the controller was first
                left[0] -= 1
                node["metadata"]["resourceVersion"] += "1"
                node["spec"]["taints"] = [clouds]
            if changes["metadata"]["resourceVersion"] != node["metadata"]["resourceVersion"]:
                raise errors.KubeConflict("the object has been modified", status=409)
            node["spec"] = changes["spec"]
            return b"{}"

    monkeypatch.setattr(bootstrap, "TRY_AGAIN_SECONDS", 0)
    with pytest.raises(errors.KubeConflict) if conflicts == bootstrap.TRIES else contextlib.nullcontext():
        await bootstrap._remove_taint(Kube(kubeconfig.Access(server="http://nowhere")), "n1")
        assert node["spec"]["taints"] == ([] if conflicts else [not_ready])


def test_only_the_clouds_taint_is_removed() -> None:
    """Others keep pods away for good reason."""
    mine = {"key": bootstrap.UNINITIALIZED, "effect": "NoSchedule"}
    other = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    assert bootstrap.without_taint({"spec": {"taints": [mine, other]}}) == [other]
    assert bootstrap.without_taint({"spec": {}}) == []
