"""Create, read, update, delete over plain HTTP: metadata, conflicts, validation, dry run, lists."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster import clusters as testing
from tests.devcluster.clusters import pod


def configmap(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


def refusal(answer: dict[str, Any]) -> tuple[int, str]:
    """Code and reason of a failure Status."""
    assert answer["kind"] == "Status", answer
    return answer["code"], answer["reason"]


def test_metadata_is_filled_in(api: testing.Client) -> None:
    """A new object gets uid, creation time, version, generation and its type."""
    made = api.create("configmaps", configmap("a"))
    assert set(made["metadata"]) >= {"uid", "creationTimestamp", "resourceVersion", "generation", "namespace"}
    assert (made["apiVersion"], made["kind"]) == ("v1", "ConfigMap")


def test_generate_name(api: testing.Client) -> None:
    """generateName gives each object a name of its own."""
    names = {
        api.create("configmaps", {"metadata": {"generateName": "x-"}})["metadata"]["name"] for _ in range(5)
    }
    assert len(names) == 5
    assert all(name.startswith("x-") and len(name) == 7 for name in names)


def test_creating_twice_is_already_exists(api: testing.Client) -> None:
    """The second creation of a name is refused with 409 AlreadyExists, as clients expect."""
    api.create("configmaps", configmap("a"))
    again = api.create("configmaps", configmap("a"))
    assert refusal(again) == (409, "AlreadyExists")
    assert again["details"] == {"name": "a", "group": "", "kind": "configmaps"}


def test_missing_namespace_is_not_found(api: testing.Client) -> None:
    """Nothing can be created in a namespace that does not exist."""
    answer = api.call("POST", "/api/v1/namespaces/nowhere/configmaps", configmap("a"))
    assert refusal(answer) == (404, "NotFound")
    assert answer["message"] == 'namespaces "nowhere" not found'


def test_unknown_object_and_unknown_path(api: testing.Client) -> None:
    """A missing object names itself in the Status; a missing resource does not."""
    assert api.get("configmaps", "none")["message"] == 'configmaps "none" not found'
    assert refusal(api.get("teapots")) == (404, "NotFound")
    assert refusal(api.call("GET", "/apis/no.such/v1/things")) == (404, "NotFound")


def test_update_needs_the_latest_version(api: testing.Client) -> None:
    """An update made from an old version is refused with 409 Conflict and changes nothing."""
    first = api.create("configmaps", configmap("a", k="1"))
    second = api.call("PUT", api.path("configmaps", "a"), {**first, "data": {"k": "2"}})
    stale = api.call("PUT", api.path("configmaps", "a"), {**first, "data": {"k": "3"}})
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    assert refusal(stale) == (409, "Conflict")
    assert "the object has been modified" in stale["message"]
    assert api.get("configmaps", "a")["data"] == {"k": "2"}


def test_update_with_another_uid_is_refused(api: testing.Client) -> None:
    """An update that names another uid is a conflict, whatever the version."""
    api.create("configmaps", configmap("a"))
    other = {"metadata": {"name": "a", "uid": "00000000-0000-0000-0000-000000000000"}}
    assert refusal(api.call("PUT", api.path("configmaps", "a"), other)) == (409, "Conflict")


def test_update_without_changes_makes_no_version(api: testing.Client) -> None:
    """Writing the same object again does not wake watchers."""
    first = api.create("configmaps", configmap("a", k="1"))
    again = api.call("PUT", api.path("configmaps", "a"), first)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_generation_follows_the_spec_only(api: testing.Client) -> None:
    """A change of the spec bumps the generation, one of labels or status does not."""
    api.create("apps/v1/deployments", {"metadata": {"name": "d"}, "spec": {"replicas": 1}})
    labelled = api.patch("apps/v1/deployments", "d", {"metadata": {"labels": {"a": "b"}}})
    scaled = api.patch("apps/v1/deployments", "d", {"spec": {"replicas": 2}})
    assert (labelled["metadata"]["generation"], scaled["metadata"]["generation"]) == (1, 2)


def test_status_is_written_through_its_subresource_only(api: testing.Client) -> None:
    """The main path ignores status, the status path ignores the rest."""
    api.create("apps/v1/deployments", {"metadata": {"name": "d"}, "spec": {"replicas": 1}})
    main = api.patch("apps/v1/deployments", "d", {"status": {"replicas": 5}})
    sub = api.patch("apps/v1/deployments", "d/status", {"status": {"replicas": 7}, "spec": {"replicas": 9}})
    assert main["status"] == {}
    assert (sub["status"], sub["spec"]) == ({"replicas": 7}, {"replicas": 1})


def test_dry_run_changes_nothing(api: testing.Client) -> None:
    """dryRun=All answers as usual, for creation, update and deletion."""
    assert api.create("configmaps", configmap("a"), dryRun="All")["metadata"]["name"] == "a"
    assert api.get("configmaps", "a")["code"] == 404
    api.create("configmaps", configmap("b", k="1"))
    assert api.patch("configmaps", "b", {"data": {"k": "2"}}, dryRun="All")["data"] == {"k": "2"}
    api.delete("configmaps", "b", dryRun="All")
    assert api.get("configmaps", "b")["data"] == {"k": "1"}
    assert api.create("configmaps", configmap("c"), dryRun="Some")["code"] == 422


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "a..b", "x" * 254, ""])
def test_bad_names_are_invalid(api: testing.Client, name: str) -> None:
    """Names that are not DNS-1123 are refused with 422."""
    assert refusal(api.create("configmaps", configmap(name))) == (422, "Invalid")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"containers": []}, "spec.containers"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image"),
        ({"containers": [{"image": "i"}]}, "spec.containers[0].name"),
        ({"containers": [{"name": "c", "image": "i"}] * 2}, "spec.containers[1].name"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy"),
        ({"volumes": [{"name": "Bad"}]}, "spec.volumes[0].name"),
    ],
)
def test_malformed_pods_are_invalid(api: testing.Client, change: dict[str, Any], field: str) -> None:
    """A pod without what kubelet needs is refused, and the Status names the field."""
    answer = api.create("pods", pod("p", "true", **change))
    assert refusal(answer) == (422, "Invalid")
    assert answer["details"]["causes"][0]["field"] == field


def test_invalid_containers_are_refused(api: testing.Client) -> None:
    """Unknown volumes, requests above limits and impossible quantities are refused."""
    unknown = {"volumeMounts": [{"name": "none", "mountPath": "/x"}]}
    above = {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
    absurd = {"resources": {"requests": {"cpu": "many"}, "limits": {"cpu": "1"}}}
    assert api.create("pods", pod("p", "true", container=unknown))["code"] == 422
    assert api.create("pods", pod("p", "true", container=above))["code"] == 422
    assert api.create("pods", pod("p", "true", container=absurd))["code"] == 400


def test_labels_are_checked(api: testing.Client) -> None:
    """Label values have 63 characters at most and no spaces, also when patched in."""
    labelled = {"metadata": {"name": "a", "labels": {"k": "with space"}}}
    assert refusal(api.create("configmaps", labelled)) == (422, "Invalid")
    api.create("configmaps", configmap("a"))
    assert api.patch("configmaps", "a", {"metadata": {"labels": {"k": "x" * 64}}})["code"] == 422


def test_pod_spec_is_immutable(api: testing.Client) -> None:
    """Of a pod's spec only a few fields may change; the image is one of them."""
    api.create("pods", pod("p", "true", schedulerName="nobody"))
    assert refusal(api.patch("pods", "p", {"spec": {"hostname": "x"}})) == (422, "Invalid")
    image = {"spec": {"containers": [{"name": "c", "image": "other"}]}}
    assert api.patch("pods", "p", image, "strategic-merge")["spec"]["containers"][0]["image"] == "other"


def test_immutable_secret(api: testing.Client) -> None:
    """An immutable Secret keeps its data."""
    api.create("secrets", {"metadata": {"name": "s"}, "stringData": {"a": "1"}, "immutable": True})
    assert api.patch("secrets", "s", {"stringData": {"a": "2"}})["code"] == 422


def test_string_data_becomes_data(api: testing.Client) -> None:
    """stringData is write-only: it comes back encoded under data."""
    made = api.create("secrets", {"metadata": {"name": "s"}, "stringData": {"a": "1"}})
    assert made["data"] == {"a": "MQ=="}
    assert "stringData" not in made
    assert made["type"] == "Opaque"


def test_object_of_another_kind_is_refused(api: testing.Client) -> None:
    """A Secret sent to the config maps is a mistake of the client."""
    assert api.create("configmaps", {"kind": "Secret", "apiVersion": "v1", **configmap("a")})["code"] == 400


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b'{"metadata": 3}'])
def test_invalid_body_is_a_bad_request(api: testing.Client, body: bytes) -> None:
    """A body that is not an object is answered with a Status, never with a traceback."""
    answer = api.http.post(api.path("configmaps"), content=body).json()
    assert refusal(answer) == (400, "BadRequest")


def test_nested_type_errors_are_bad_requests(api: testing.Client) -> None:
    """Lists in place of objects do not crash the server."""
    assert api.create("pods", {"metadata": {"name": "p"}, "spec": {"containers": ["x"]}})["code"] == 400
    assert api.create("pods", {"metadata": {"name": "p"}, "spec": 7})["code"] == 400
    assert api.get("pods")["items"] == []


def test_unsupported_methods(api: testing.Client) -> None:
    """PUT on a collection and POST on an object are 405."""
    assert api.call("PUT", api.path("configmaps"), {})["code"] == 405
    assert api.call("POST", api.path("configmaps", "a"), {})["code"] == 405
    assert api.call("POST", "/api/v1/configmaps", configmap("a"))["code"] == 405


def test_list_selects_by_labels_and_fields(api: testing.Client) -> None:
    """Both selectors narrow a list, together too."""
    for name, colour in (("a", "red"), ("b", "red"), ("c", "blue")):
        api.create("configmaps", {"metadata": {"name": name, "labels": {"colour": colour}}})

    def names(**query: str) -> list[str]:
        return [item["metadata"]["name"] for item in api.get("configmaps", **query)["items"]]

    assert names(labelSelector="colour=red") == ["a", "b"]
    assert names(labelSelector="colour in (red, blue),colour!=red") == ["c"]
    assert names(fieldSelector="metadata.name=b") == ["b"]
    assert names(labelSelector="colour=red", fieldSelector="metadata.name!=b") == ["a"]
    assert api.get("configmaps", labelSelector="a=b=c")["code"] == 400


def test_list_in_pages(api: testing.Client) -> None:
    """limit and continue walk through the whole list once, in order."""
    wanted = [f"c{number:02}" for number in range(7)]
    for name in wanted:
        api.create("configmaps", configmap(name))
    seen: list[str] = []
    token = ""
    while True:
        page = api.get("configmaps", limit="3", **({"continue": token} if token else {}))
        seen += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
        if not token:
            break
        assert page["metadata"]["remainingItemCount"] == len(wanted) - len(seen)
    assert seen == wanted


def test_continue_after_compaction_is_expired(own: testing.Client) -> None:
    """A list that is continued after the history was compacted is refused with 410."""
    for name in ("a", "b", "c"):
        own.create("configmaps", configmap(name))
    token = own.get("configmaps", limit="1")["metadata"]["continue"]
    own.call("POST", "/devcluster/v1/compact")
    assert refusal(own.get("configmaps", limit="1", **{"continue": token})) == (410, "Expired")
    assert own.get("configmaps", limit="1", **{"continue": "rubbish"})["code"] == 400


def test_list_over_all_namespaces(api: testing.Client) -> None:
    """The path without a namespace lists them all."""
    api.create("configmaps", configmap("everywhere"))
    found = api.call("GET", "/api/v1/configmaps", fieldSelector="metadata.name=everywhere")
    assert api.namespace in [item["metadata"]["namespace"] for item in found["items"]]
    assert found["kind"] == "ConfigMapList"


def test_custom_resource_is_served_once_defined(own: testing.Client) -> None:
    """Creating a definition makes its kind served, deleting it takes kind and objects away."""
    names = {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]}
    versions = [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}]
    spec = {"group": "example.com", "names": names, "scope": "Namespaced", "versions": versions}
    definition = {"metadata": {"name": "widgets.example.com"}, "spec": spec}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert own.get("example.com/v1/widgets")["code"] == 404
    own.call("POST", path, definition)
    made = own.create("example.com/v1/widgets", {"metadata": {"name": "w"}, "spec": {"size": [1, 2]}})
    assert (made["kind"], made["apiVersion"]) == ("Widget", "example.com/v1")
    resources = own.call("GET", "/apis/example.com/v1")["resources"]
    assert [one["name"] for one in resources] == ["widgets", "widgets/status"]
    own.call("DELETE", f"{path}/widgets.example.com")
    assert own.get("example.com/v1/widgets", "w")["code"] == 404


def test_definition_must_be_named_after_its_kind(api: testing.Client) -> None:
    """A definition whose name does not match is refused."""
    spec = {"group": "g.io", "names": {"plural": "as", "kind": "A"}, "versions": [{"name": "v1"}]}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert api.call("POST", path, {"metadata": {"name": "bs.g.io"}, "spec": spec})["code"] == 422
    assert api.call("POST", path, {"metadata": {"name": "as.g.io"}, "spec": {}})["code"] == 422


def test_priority_class_is_resolved(own: testing.Client) -> None:
    """A pod takes the value of its priority class; an unknown class is forbidden."""
    own.call(
        "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000}
    )
    made = own.create("pods", pod("p", "true", priorityClassName="high", schedulerName="nobody"))
    assert made["spec"]["priority"] == 1000
    assert refusal(own.create("pods", pod("q", "true", priorityClassName="none"))) == (403, "Forbidden")


def test_large_lists_are_fast(own: testing.Client) -> None:
    """Three thousand objects come in one response within a second: stored bytes are joined."""
    for number in range(3000):
        own.http.post(own.path("configmaps"), content=b'{"metadata":{"name":"c%d"}}' % number)
    answers = (own.http.get(own.path("configmaps")) for _ in range(20))
    quick = next(answer for answer in answers if answer.elapsed.total_seconds() < 1.0)
    assert len(quick.json()["items"]) == 3000
