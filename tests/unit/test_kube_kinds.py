"""Kinds: their paths in the API, and the kind of a manifest."""

from __future__ import annotations

import pytest

from penstock import errors
from penstock.kube import kinds

WIDGETS = kinds.Kind("example.org", "v1alpha1", "widgets", "Widget")


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "sub", "path"),
    [
        (kinds.PODS, "", "", "", "/api/v1/pods"),
        (kinds.PODS, "a", "", "", "/api/v1/namespaces/a/pods"),
        (kinds.PODS, "a", "b", "log", "/api/v1/namespaces/a/pods/b/log"),
        (kinds.NODES, "", "n1", "status", "/api/v1/nodes/n1/status"),
        (kinds.NAMESPACES, "", "a", "", "/api/v1/namespaces/a"),
        (kinds.CLUSTER_ROLES, "", "r", "", "/apis/rbac.authorization.k8s.io/v1/clusterroles/r"),
        (WIDGETS, "a", "w", "status", "/apis/example.org/v1alpha1/namespaces/a/widgets/w/status"),
    ],
)
def test_kind_paths(kind: kinds.Kind, namespace: str, name: str, sub: kinds.Sub, path: str) -> None:
    """Of the core and other groups, with and without a namespace."""
    assert kind.path(namespace=namespace, name=name, sub=sub) == path


def test_impossible_path_is_an_error() -> None:
    """The API's 404 would be taken for "not found"."""
    with pytest.raises(ValueError, match="nodes are not in namespaces"):
        kinds.NODES.path(namespace="a", name="n1")
    with pytest.raises(ValueError, match="pods are in namespaces"):
        kinds.PODS.path(name="p")


def test_kind_has_kubectls_name() -> None:
    """In messages, metrics and roles."""
    assert [str(kind) for kind in (kinds.PODS, WIDGETS)] == ["pods", "widgets.example.org"]


def test_kind_of_a_manifest() -> None:
    """By apiVersion and kind; unknown ones are an error."""
    assert kinds.of({"apiVersion": "apps/v1", "kind": "DaemonSet"}) is kinds.DAEMON_SETS
    for version, kind in (("apps/v2", "DaemonSet"), ("v1", "Widget")):
        with pytest.raises(errors.UsageError, match=f"{version} {kind}"):
            kinds.of({"apiVersion": version, "kind": kind})
