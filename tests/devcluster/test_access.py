"""Who gets in, what is found without asking for objects: tokens, discovery, OpenAPI, tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock import errors
from penstock_lab.devcluster import apirequests
from tests.devcluster import clusters as testing
from tests.devcluster.clusters import pod

TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def test_health_and_version_are_open(cluster: testing.Running) -> None:
    """Probes and version need no token."""
    for path in ("/readyz", "/livez", "/healthz"):
        assert httpx2.get(cluster.url + path).text == "ok"
    assert httpx2.get(cluster.url + "/version").json()["gitVersion"].startswith("v1.")


@pytest.mark.parametrize("header", ["", "Bearer wrong", "Basic test-admin", "Bearer"])
def test_requests_without_valid_token_are_unauthorized(cluster: testing.Running, header: str) -> None:
    """All other paths answer 401 with a Status without a known bearer token."""
    for path in ("/api", "/api/v1/pods", "/devcluster/v1/faults", "/nonsense"):
        answer = httpx2.get(cluster.url + path, headers={"authorization": header})
        assert answer.status_code == 401
        assert answer.json()["reason"] == "Unauthorized"


def test_viewer_may_read_all_but_secrets(cluster: testing.Running, api: testing.Client) -> None:
    """A viewer gets, lists and watches; secrets, changes and the admin API are forbidden."""
    api.create("configmaps", {"metadata": {"name": "a"}})
    with cluster.client(cluster.viewer_token, namespace=api.namespace) as viewer:
        assert viewer.get("configmaps", "a")["kind"] == "ConfigMap"
        assert viewer.get("configmaps")["kind"] == "ConfigMapList"
        answers = [
            viewer.get("secrets"),
            viewer.get("secrets", "x"),
            viewer.get("secrets", watch="1"),
            viewer.create("configmaps", {"metadata": {"name": "b"}}),
            viewer.patch("configmaps", "a", {}),
            viewer.delete("configmaps", "a"),
            viewer.call("GET", "/devcluster/v1/faults"),
        ]
    assert {(one["code"], one["reason"]) for one in answers} == {(403, "Forbidden")}
    assert 'User "viewer" cannot list resource "secrets"' in answers[0]["message"]


def test_tokens_file(tmp_path: Path) -> None:
    """Each line gives a token its user and group; empty lines do not matter."""
    path = tmp_path / "tokens"
    path.write_text("abc,alice,admin\n\ndef, bob ,viewer\n")
    assert apirequests.read_tokens(path) == {
        "abc": apirequests.Identity("alice", "admin"),
        "def": apirequests.Identity("bob", "viewer"),
    }


@pytest.mark.parametrize("text", ["abc", "abc,alice", "abc,alice,king", ",alice,admin"])
def test_invalid_tokens_file_is_usage_error(tmp_path: Path, text: str) -> None:
    """An invalid line is one error that says what was expected."""
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(errors.UsageError, match="entry 1 is invalid"):
        apirequests.read_tokens(path)


def test_discovery_lists_every_kind(api: testing.Client) -> None:
    """Groups, versions and resources are found as clients look them up."""
    assert api.call("GET", "/api")["versions"] == ["v1"]
    groups = {group["name"] for group in api.call("GET", "/apis")["groups"]}
    assert {"apps", "batch", "policy", "coordination.k8s.io", "apiextensions.k8s.io"} <= groups
    core = {one["name"]: one for one in api.call("GET", "/api/v1")["resources"]}
    assert core["pods"]["shortNames"] == ["po"]
    assert core["nodes"]["namespaced"] is False
    assert (core["pods/eviction"]["kind"], core["pods/eviction"]["group"]) == ("Eviction", "policy")
    assert api.call("GET", "/apis/apps")["preferredVersion"]["groupVersion"] == "apps/v1"
    assert api.call("GET", "/apis/apps/v9")["code"] == 404


def test_openapi_suffices_for_kubectl(api: testing.Client) -> None:
    """Version 3 declares field validation for every kind, version 2 is empty in JSON and in protobuf."""
    places = api.call("GET", "/openapi/v3")["paths"]
    document = api.call("GET", places["api/v1"]["serverRelativeURL"])
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert "fieldValidation" in [one["name"] for one in patch["parameters"]]
    assert api.call("GET", "/openapi/v3/apis/none/v1")["code"] == 404
    assert api.call("GET", "/openapi/v2")["definitions"] == {}
    wanted = {"accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    assert api.http.get("/openapi/v2", headers=wanted).content == b""


def columns(table: dict[str, Any], priority: int = 0) -> list[str]:
    return [one["name"] for one in table["columnDefinitions"] if one["priority"] <= priority]


def test_tables_have_kubectls_columns(api: testing.Client) -> None:
    """kubectl's columns for pods and nodes, name and age for other kinds."""
    api.create("pods", pod("p", "true"))
    api.phase("p", "Succeeded")
    pods = api.get("pods", headers=TABLE)
    assert columns(pods) == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert "Node" in columns(pods, 1)
    assert pods["rows"][0]["cells"][:4] == ["p", "0/1", "Completed", "0"]
    assert pods["rows"][0]["object"]["metadata"]["name"] == "p"
    nodes = api.call("GET", "/api/v1/nodes", headers=TABLE)
    assert [row["cells"][:2] for row in nodes["rows"]] == [["n1", "Ready"], ["n2", "Ready"]]
    api.create("configmaps", {"metadata": {"name": "m"}})
    assert columns(api.get("configmaps", "m", headers=TABLE)) == ["Name", "Age"]


def test_subject_access_review_by_admin(api: testing.Client) -> None:
    """A service account may do everything here, the viewer may not."""
    for user, allowed in (("system:serviceaccount:a:b", True), ("viewer", False)):
        asked = {"verb": "create", "resource": "pods", "group": ""}
        question = {"spec": {"user": user, "resourceAttributes": asked}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        assert api.call("POST", path, question)["status"]["allowed"] is allowed
