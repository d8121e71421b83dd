"""410 Gone: a version that is too old to go on from is refused, never answered with a gap."""

from __future__ import annotations

import json
import os
import signal

from penstock_lab import spec, testing
from tests.conformance import client


def forget(lab: testing.RunningLab, api: client.Client) -> None:
    """Make the server lose its history: the dev cluster on request, a real one by starting anew."""
    if testing.kubernetes() == spec.DEV:
        api.call("POST", "/devcluster/v1/compact")
        return
    status = json.loads(lab.penstock("lab", "status", "--format", "json", check=False).stdout)
    pid = next(int(part["pid"]) for part in status["components"] if part["name"] == "apiserver")
    os.kill(pid, signal.SIGKILL)
    testing.lab_command(lab.place, "up")


def test_watch_from_expired_version_is_410(lab: testing.RunningLab, api: client.Client) -> None:
    """Whether as the response itself or as an ERROR event: the code is 410 and the reason Expired."""
    version = api.create("pods", client.pod("p"))["metadata"]["resourceVersion"]
    api.create("pods", client.pod("q"))
    forget(lab, api)
    first = next(iter(api.watch("pods", version=version, seconds=5)))
    assert first["type"] == "ERROR"
    assert first["object"]["kind"] == "Status"
    assert (first["object"]["code"], first["object"]["reason"]) == (410, "Expired")


def test_long_lists_come_in_pages_of_one_version(api: client.Client) -> None:
    """The pages together are the list, and all have the version of the first."""
    for number in range(5):
        assert api.create("pods", client.pod(f"p{number}"))["kind"] == "Pod"
    first = api.get("pods", limit=2)
    api.create("pods", client.pod("later"))
    names = [item["metadata"]["name"] for item in first["items"]]
    page = first
    while page["metadata"].get("continue"):
        page = api.get("pods", limit=2, **{"continue": page["metadata"]["continue"]})
        names += [item["metadata"]["name"] for item in page["items"]]
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert names == [f"p{number}" for number in range(5)]


def test_invalid_continue_token_is_refused(api: client.Client) -> None:
    """As a bad request."""
    answer = api.get("pods", limit=2, **{"continue": "nonsense"})
    assert (answer["kind"], answer["code"]) == ("Status", 400)
