"""Graceful deletion: SIGTERM, patience, SIGKILL; the object goes last, and only the one that was meant."""

from __future__ import annotations

import time

from tests.conformance import client

STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.2; done"


def running(api: client.Client, node: str, name: str, script: str) -> client.Json:
    """A pod that has said `up`."""
    api.create("pods", client.shell(name, script))
    api.bind(name, node)
    found = api.phase(name, "Running")
    end = time.monotonic() + client.PATIENCE
    while "up" not in api.log(name).text:
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def test_unbound_pod_is_deleted_immediately(api: client.Client) -> None:
    """No node has to confirm."""
    api.create("pods", client.pod("unbound"))
    api.delete("pods", "unbound")
    assert api.get("pods", "unbound")["code"] == 404


def test_a_running_pod_stays_until_its_process_has_ended(api: client.Client, node: str) -> None:
    """It has a deletionTimestamp meanwhile, ends by its own handler, and its last state is seen."""
    script = "trap 'sleep 1; exit 3' TERM; echo up; while :; do sleep 0.1; done"
    made = running(api, node, "polite", script)
    api.delete("pods", "polite", {"gracePeriodSeconds": 10})
    events = api.watch("pods", version=made["metadata"]["resourceVersion"], seconds=60)
    told = list(client.up_to_the_end(events))
    leaving = next(event for event in told if "deletionTimestamp" in event["object"]["metadata"])
    assert leaving["type"] == "MODIFIED"
    assert leaving["object"]["metadata"]["deletionGracePeriodSeconds"] == 10
    assert "running" in leaving["object"]["status"]["containerStatuses"][0]["state"]
    assert told[-1]["type"] == "DELETED"
    assert client.terminated(told[-1]["object"])["exitCode"] == 3


def test_sigkill_after_grace_period(api: client.Client, node: str) -> None:
    """A process that ignores SIGTERM is killed, not before and not long after."""
    running(api, node, "stubborn", STUBBORN)
    began = time.monotonic()
    api.delete("pods", "stubborn", {"gracePeriodSeconds": 2})
    api.gone("pods", "stubborn")
    assert 1.5 <= time.monotonic() - began < 25  # where nothing is said it would be 30


def test_deletion_with_another_uid_is_a_conflict(api: client.Client) -> None:
    """The pod is unharmed."""
    api.create("pods", client.pod("namesake"))
    answer = api.delete(
        "pods", "namesake", {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    )
    assert (answer["code"], answer["reason"]) == (409, "Conflict")
    assert api.get("pods", "namesake")["kind"] == "Pod"


def test_deleting_a_missing_object_is_not_found(api: client.Client) -> None:
    """404, with the reason."""
    answer = api.delete("pods", "nobody")
    assert (answer["code"], answer["reason"]) == (404, "NotFound")


def test_an_ended_pod_can_be_deleted_and_is_soon_gone(api: client.Client, node: str) -> None:
    """Its node has nothing to stop any more."""
    api.create("pods", client.shell("over", "exit 0"))
    api.bind("over", node)
    api.phase("over", "Succeeded")
    api.delete("pods", "over", {"gracePeriodSeconds": 1})
    api.gone("pods", "over", patience=10)
    assert api.get("pods", "over")["reason"] == "NotFound"
