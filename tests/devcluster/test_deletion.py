"""Deletion: grace, finalizers, preconditions, owners, namespaces."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from tests.devcluster import clusters as testing
from tests.devcluster import marks
from tests.devcluster.clusters import pod

STUBBORN = ("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
POLITE = ("sh", "-c", "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done")


def running(api: testing.Client, name: str, *command: str, **spec: Any) -> dict[str, Any]:
    """A pod whose script has said that it is up."""
    api.create("pods", pod(name, *command, **spec))
    found = api.phase(name, "Running")
    end = time.monotonic() + 60
    while "up" not in api.log(name):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def events_of(api: testing.Client, name: str, start: str) -> list[dict[str, Any]]:
    """What a watcher saw of this pod, up to its end."""
    seen = []
    query = {"watch": "1", "resourceVersion": start, "fieldSelector": f"metadata.name={name}"}
    with api.http.stream("GET", api.path("pods"), params=query) as answer:
        for line in answer.iter_lines():
            seen.append(msgspec.json.decode(line))
            if seen[-1]["type"] == "DELETED":
                break
    return seen


def test_final_status_precedes_deletion(api: testing.Client) -> None:
    """SIGTERM reaches the process, its exit code is in a MODIFIED event, and only then comes DELETED."""
    start = running(api, "p", *POLITE)["metadata"]["resourceVersion"]
    marked = api.delete("pods", "p")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    seen = events_of(api, "p", start)
    last = [event for event in seen if event["type"] == "MODIFIED"][-1]["object"]["status"]
    assert last["phase"] == "Failed"
    assert last["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    assert seen[-1]["type"] == "DELETED"


def test_sigkill_after_grace_period(api: testing.Client) -> None:
    """The object stays while the process does, and the exit code is 137."""
    start = running(api, "p", *STUBBORN, terminationGracePeriodSeconds=1)["metadata"]["resourceVersion"]
    begin = time.monotonic()
    api.delete("pods", "p")
    seen = events_of(api, "p", start)
    assert 0.8 < time.monotonic() - begin < 25  # where nothing is said it would be 30
    code = seen[-2]["object"]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    assert code == 137


def test_first_process_without_a_handler_ignores_sigterm(api: testing.Client) -> None:
    """As process 1 of its namespace `sleep` survives SIGTERM until the grace is over."""
    api.create("pods", pod("p", "sleep", "60"))
    api.phase("p", "Running")
    begin = time.monotonic()
    api.delete("pods", "p", {"gracePeriodSeconds": 1})
    api.gone("p")
    assert time.monotonic() - begin > 0.8


def test_second_deletion_can_shorten_grace_period(api: testing.Client) -> None:
    """A deletion with a shorter grace period wins over an earlier one, never the reverse."""
    running(api, "p", *STUBBORN)
    api.delete("pods", "p", {"gracePeriodSeconds": 60})
    assert api.delete("pods", "p", {"gracePeriodSeconds": 90})["metadata"]["deletionGracePeriodSeconds"] == 60
    begin = time.monotonic()
    api.delete("pods", "p", gracePeriodSeconds="1")
    api.gone("p")
    assert time.monotonic() - begin < 40


def test_forced_deletion_and_unbound_pods_are_immediate(api: testing.Client) -> None:
    """Neither needs confirmation by a node."""
    running(api, "p", *STUBBORN)
    api.delete("pods", "p", {"gracePeriodSeconds": 0})
    assert api.get("pods", "p")["code"] == 404
    api.create("pods", pod("q", "true", schedulerName="nobody"))
    api.delete("pods", "q")
    assert api.get("pods", "q")["code"] == 404


def test_finished_pods_are_deleted_immediately(api: testing.Client) -> None:
    """A terminated pod needs no grace period."""
    api.create("pods", pod("p", "true"))
    api.phase("p", "Succeeded")
    api.delete("pods", "p")
    assert api.get("pods", "p")["code"] == 404


def test_preconditions(api: testing.Client) -> None:
    """A deletion that names another uid or version is refused with 409 and does nothing."""
    made = api.create("configmaps", {"metadata": {"name": "a"}})
    assert api.delete("configmaps", "a", {"preconditions": {"uid": "other"}})["code"] == 409
    assert api.delete("configmaps", "a", {"preconditions": {"resourceVersion": "1"}})["code"] == 409
    mine = {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}
    assert api.delete("configmaps", "a", {"preconditions": mine})["status"] == "Success"


def test_finalizers_hold_the_object(api: testing.Client) -> None:
    """An object with a finalizer is marked, and goes with the removal of its last one."""
    api.create("configmaps", {"metadata": {"name": "a", "finalizers": ["x.io/one", "x.io/two"]}})
    assert "deletionTimestamp" in api.delete("configmaps", "a")["metadata"]
    api.patch("configmaps", "a", {"metadata": {"finalizers": ["x.io/two"]}})
    assert "deletionTimestamp" in api.get("configmaps", "a")["metadata"]
    api.patch("configmaps", "a", {"metadata": {"finalizers": None}})
    assert api.get("configmaps", "a")["code"] == 404


def test_finalizer_of_a_running_pod_outlives_the_process(api: testing.Client) -> None:
    """The process ends, the object waits for its finalizer with the final status on it."""
    api.create("pods", {**pod("p", *POLITE), "metadata": {"name": "p", "finalizers": ["x.io/hold"]}})
    api.phase("p", "Running")
    time.sleep(0.1)
    api.delete("pods", "p")
    held = api.phase("p", "Failed")
    assert held["metadata"]["finalizers"] == ["x.io/hold"]
    api.patch("pods", "p", {"metadata": {"finalizers": None}})
    api.gone("p")


def owned(name: str, owner: dict[str, Any], **more: Any) -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], **more}
    return {"metadata": {"name": name, "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}]}}


def test_dependents_follow_their_owner(api: testing.Client) -> None:
    """Deleting an owner removes what it owns, and what that owns."""
    owner = api.create("configmaps", {"metadata": {"name": "owner"}})
    child = api.create("configmaps", owned("child", owner))
    api.create("secrets", owned("grandchild", child))
    api.delete("configmaps", "owner")
    api.until(lambda found: found.get("code") == 404, "configmaps", "child")
    left = api.until(lambda found: found.get("code") == 404, "secrets", "grandchild")
    assert left["reason"] == "NotFound"


def test_second_owner_keeps_a_dependent(api: testing.Client) -> None:
    """An object with two owners goes with the last of them."""
    first = api.create("configmaps", {"metadata": {"name": "first"}})
    second = api.create("configmaps", {"metadata": {"name": "second"}})
    both = (
        owned("child", first)["metadata"]["ownerReferences"]
        + owned("child", second)["metadata"]["ownerReferences"]
    )
    api.create("configmaps", {"metadata": {"name": "child", "ownerReferences": both}})
    api.delete("configmaps", "first")
    time.sleep(0.1)
    assert api.get("configmaps", "child")["kind"] == "ConfigMap"
    api.delete("configmaps", "second")
    api.until(lambda found: found.get("code") == 404, "configmaps", "child")


def test_object_with_unknown_owner_is_collected(api: testing.Client) -> None:
    """A reference to a uid that does not exist does not keep an object alive."""
    ghost = {"metadata": {"name": "ghost", "uid": "11111111-1111-1111-1111-111111111111"}}
    assert api.create("configmaps", owned("child", ghost))["metadata"]["name"] == "child"
    api.until(lambda found: found.get("code") == 404, "configmaps", "child")
    api.create("configmaps", {"metadata": {"name": "adopted"}})
    api.patch("configmaps", "adopted", {"metadata": owned("adopted", ghost)["metadata"]})
    api.until(lambda found: found.get("code") == 404, "configmaps", "adopted")


def test_namespace_deletion_removes_content(own: testing.Client) -> None:
    """A namespace is Terminating while it has content, accepts nothing new, and is then removed."""
    own.call("POST", "/api/v1/namespaces", {"metadata": {"name": "doomed"}})
    path = "/api/v1/namespaces/doomed"
    held = {"metadata": {"name": "held", "finalizers": ["x.io/hold"]}}
    own.call("POST", f"{path}/configmaps", held)
    own.call("POST", f"{path}/pods", pod("p", "sleep", "60", terminationGracePeriodSeconds=1))
    assert own.call("DELETE", path)["status"]["phase"] == "Terminating"
    assert own.call("POST", f"{path}/configmaps", {"metadata": {"name": "new"}})["code"] == 403
    time.sleep(0.1)
    assert own.call("GET", path)["status"]["phase"] == "Terminating"
    own.call(
        "PATCH",
        f"{path}/configmaps/held",
        {"metadata": {"finalizers": None}},
        content_type="application/merge-patch+json",
    )
    end = time.monotonic() + 60
    while own.call("GET", path).get("code") != 404 and time.monotonic() < end:
        time.sleep(0.05)
    assert own.call("GET", path)["code"] == 404
    assert own.call("GET", "/api/v1/pods", fieldSelector="metadata.namespace=doomed")["items"] == []


def test_protected_namespaces_cannot_be_deleted(api: testing.Client) -> None:
    """The namespaces that must exist cannot be deleted."""
    assert api.call("DELETE", "/api/v1/namespaces/default")["code"] == 403


def test_collection_is_deleted_by_selector(api: testing.Client) -> None:
    """DELETE on a collection removes what the selectors choose, nothing else."""
    for name, value in (("a", "1"), ("b", "1"), ("c", "2")):
        api.create("configmaps", {"metadata": {"name": name, "labels": {"k": value}}})
    api.call("DELETE", api.path("configmaps"), labelSelector="k=1")
    assert [item["metadata"]["name"] for item in api.get("configmaps")["items"]] == ["c"]
    assert api.call("DELETE", "/api/v1/configmaps")["code"] == 405


def test_eviction_deletes_gracefully(api: testing.Client) -> None:
    """An eviction is a deletion with the pod's own grace."""
    running(api, "p", *POLITE)
    answer = api.call("POST", api.path("pods", "p/eviction"), {"metadata": {"name": "p"}})
    assert answer["status"] == "Success"
    api.gone("p")


def test_pod_failing_during_deletion_leaves_no_process(
    own_cluster: testing.Running, own: testing.Client
) -> None:
    """One container's end cannot be read; the other one, which ignores SIGTERM, is killed too."""
    mark = marks.new()
    deaf = (*STUBBORN[:2], f": {mark}; {STUBBORN[2]}")
    commands = {"bad": POLITE, "deaf": deaf}
    containers = [{"name": name, "image": "any", "command": words} for name, words in commands.items()]
    own.create("pods", pod("p", containers=containers))
    end = time.monotonic() + 60
    while not all(own.log("p", container=name) == "up\n" for name in commands):
        assert time.monotonic() < end
        time.sleep(0.02)
    for lost in own_cluster.data_dir.rglob("bad.termination"):
        lost.unlink()
    own.delete("pods", "p", {"gracePeriodSeconds": 600})
    own.gone("p")
    assert marks.left_over(mark) == []
