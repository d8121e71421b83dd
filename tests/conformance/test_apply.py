"""Server-side apply: make it so, know whose a field is, and say when two want different things."""

from __future__ import annotations

from tests.conformance import client


def quota(pods: str, **more: str) -> client.Json:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"pods": pods, **more}},
    }


def test_apply_creates_the_object(api: client.Client) -> None:
    """Apply creates a missing object, and another manager may apply the same."""
    made = api.apply("resourcequotas", "q", quota("3"), manager="site")
    assert made["spec"]["hard"] == {"pods": "3"}
    again = api.apply("resourcequotas", "q", quota("3"), manager="admin")
    assert again["metadata"]["uid"] == made["metadata"]["uid"]


def test_applying_the_same_again_changes_nothing(api: client.Client) -> None:
    """A LimitRange has no status that a controller would write: its version stays."""
    manifest = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]},
    }
    first = api.apply("limitranges", "l", manifest, manager="site")
    again = api.apply("limitranges", "l", manifest, manager="site")
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_apply_removes_fields_no_longer_applied(api: client.Client) -> None:
    """A field that only we set is removed when we leave it out."""
    api.apply("resourcequotas", "q", quota("3", secrets="5"), manager="site")
    changed = api.apply("resourcequotas", "q", quota("3"), manager="site")
    assert changed["spec"]["hard"] == {"pods": "3"}


def test_different_values_conflict(api: client.Client) -> None:
    """409 names the other; force takes the field over."""
    api.apply("resourcequotas", "q", quota("3"), manager="site")
    answer = api.apply("resourcequotas", "q", quota("4"), manager="admin")
    assert (answer["code"], answer["reason"]) == (409, "Conflict")
    assert '"site"' in answer["message"]
    forced = api.apply("resourcequotas", "q", quota("4"), manager="admin", force=True)
    assert forced["spec"]["hard"] == {"pods": "4"}


def test_a_manager_must_be_named(api: client.Client) -> None:
    """Without a fieldManager the request is refused."""
    answer = api.call(
        "PATCH", api.path("resourcequotas", "q"), quota("1"), kind="application/apply-patch+yaml"
    )
    assert answer["code"] in (400, 422)
