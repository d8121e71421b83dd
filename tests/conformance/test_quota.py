"""Quotas: too much is Forbidden with words that name the quota; the room comes back."""

from __future__ import annotations

from tests.conformance import client


def set_quota(api: client.Client, hard: dict[str, str]) -> None:
    """A quota that is in force when this returns."""
    api.create("resourcequotas", {"metadata": {"name": "limit"}, "spec": {"hard": hard}})
    api.until(lambda found: found.get("status", {}).get("hard") == hard, "resourcequotas", "limit")


def asking(name: str, cpu: str) -> client.Json:
    return client.pod(name, container={"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}})


def test_exceeding_a_quota_is_forbidden(api: client.Client) -> None:
    """403, and the message has the quota's name and what was asked, used and allowed."""
    set_quota(api, {"requests.cpu": "1", "pods": "10"})
    assert api.create("pods", asking("fits", "600m"))["kind"] == "Pod"
    answer = api.create("pods", asking("more", "600m"))
    assert (answer["code"], answer["reason"]) == (403, "Forbidden")
    for words in ("exceeded quota: limit", "requested: requests.cpu=600m", "limited: requests.cpu=1"):
        assert words in answer["message"]
    assert api.get("pods", "more")["code"] == 404


def test_a_pod_that_says_nothing_of_what_is_limited_is_forbidden(api: client.Client) -> None:
    """A quota on CPUs makes every pod name its own."""
    set_quota(api, {"requests.cpu": "1"})
    answer = api.create("pods", client.pod("silent"))
    assert answer["code"] == 403
    assert "must specify" in answer["message"]


def test_deleted_pod_frees_quota(api: client.Client) -> None:
    """A deleted pod no longer counts."""
    set_quota(api, {"pods": "1"})
    api.create("pods", client.pod("first"))
    assert api.create("pods", client.pod("second"))["code"] == 403
    api.delete("pods", "first")
    api.gone("pods", "first")
    api.until(lambda found: found["status"]["used"]["pods"] == "0", "resourcequotas", "limit")
    assert api.create("pods", client.pod("second"))["kind"] == "Pod"
