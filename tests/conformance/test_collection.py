"""Garbage collection: what belongs to a pod goes with it."""

from __future__ import annotations

from tests.conformance import client


def secret(name: str, *, owner: str, uid: str) -> client.Json:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": uid}
    return {"metadata": {"name": name, "ownerReferences": [reference]}, "stringData": {"word": "hello"}}


def test_secret_is_collected_with_its_pod(api: client.Client) -> None:
    """Only the cluster deletes it."""
    owner = api.create("pods", client.pod("owner"))
    api.create("secrets", secret("belonging", owner="owner", uid=owner["metadata"]["uid"]))
    api.create("secrets", {"metadata": {"name": "free"}})
    assert api.get("secrets", "belonging")["kind"] == "Secret"
    api.delete("pods", "owner")
    api.gone("secrets", "belonging")
    assert api.get("secrets", "free")["kind"] == "Secret"


def test_secret_with_unknown_owner_is_collected(api: client.Client) -> None:
    """The owner's uid counts, although there is a pod of that name."""
    api.create("pods", client.pod("owner"))
    api.create("secrets", secret("stale", owner="owner", uid="00000000-0000-4000-8000-000000000000"))
    api.gone("secrets", "stale")
    assert api.get("pods", "owner")["kind"] == "Pod"


def test_namespace_deletion_removes_content(api: client.Client) -> None:
    """Terminating first, then gone."""
    name = f"{api.namespace}-b"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    api.call("POST", f"/api/v1/namespaces/{name}/pods", client.pod("inside"))
    answer = api.call("DELETE", f"/api/v1/namespaces/{name}")
    assert answer["status"]["phase"] == "Terminating"
    end_of = client.Client.until
    other = api.namespace
    try:
        api.namespace = name
        end_of(api, lambda found: found.get("code") == 404, "pods", "inside")
    finally:
        api.namespace = other
