"""Patches as pure functions: merge, strategic merge, JSON patch, server-side apply."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_lab.devcluster import kindtable, patches, statuses
from penstock_lab.devcluster.objectstore import Entry

SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.text("abc", max_size=3)
NAMES = st.text("abcxyz", min_size=1, max_size=2)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(NAMES, TREES, max_size=4)


def without_nulls(tree: Any) -> Any:
    """What is left of a tree when every null of an object is taken as absent."""
    if isinstance(tree, dict):
        return {name: without_nulls(value) for name, value in tree.items() if value is not None}
    return tree


@given(target=OBJECTS, patch=OBJECTS)
def test_merge_laws(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """A merge is idempotent, changes neither argument, and an empty one does nothing."""
    before = copy.deepcopy((target, patch))
    once = patches.merge(target, patch)
    assert (target, patch) == before
    assert patches.merge(once, patch) == once
    assert patches.merge(target, {}) == target


@given(patch=OBJECTS)
def test_merge_into_empty_object(patch: dict[str, Any]) -> None:
    """RFC 7386: nulls only remove."""
    assert patches.merge({}, patch) == without_nulls(patch)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_examples(target: Any, patch: Any, result: Any) -> None:
    """The examples of RFC 7386."""
    assert patches.merge(target, patch) == result


POD: dict[str, Any] = {
    "metadata": {"finalizers": ["a"]},
    "spec": {
        "containers": [
            {"name": "x", "image": "1", "env": [{"name": "A", "value": "1"}]},
            {"name": "y", "image": "2"},
        ],
        "tolerations": [{"key": "k"}],
    },
}


def test_strategic_merges_keyed_lists() -> None:
    """Containers are found by name, their variables too; unnamed ones stay."""
    patch = {
        "spec": {
            "containers": [{"name": "x", "env": [{"name": "B", "value": "2"}]}, {"name": "z", "image": "3"}]
        }
    }
    containers = patches.strategic(POD, patch)["spec"]["containers"]
    assert [one["name"] for one in containers] == ["x", "y", "z"]
    assert containers[0]["image"] == "1"
    assert [one["name"] for one in containers[0]["env"]] == ["A", "B"]


def test_strategic_directives() -> None:
    """Deletion of one element, replacement of a list or object, retained keys, removal from a set."""
    delete = {"spec": {"containers": [{"name": "y", "$patch": "delete"}]}}
    assert [one["name"] for one in patches.strategic(POD, delete)["spec"]["containers"]] == ["x"]
    replace = {"spec": {"containers": [{"$patch": "replace"}, {"name": "n"}]}}
    assert patches.strategic(POD, replace)["spec"]["containers"] == [{"name": "n"}]
    assert patches.strategic(POD, {"spec": {"$patch": "replace", "a": 1}})["spec"] == {"a": 1}
    assert patches.strategic(POD, {"spec": {"$retainKeys": ["tolerations"]}})["spec"] == {
        "tolerations": [{"key": "k"}]
    }
    assert patches.strategic(POD, {"metadata": {"finalizers": ["b"]}})["metadata"]["finalizers"] == ["a", "b"]
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert patches.strategic(POD, gone)["metadata"]["finalizers"] == []
    assert "spec" not in patches.strategic(POD, {"spec": {"$patch": "delete"}})
    order = {"spec": {"$setElementOrder/containers": [{"name": "y"}, {"name": "x"}]}}
    assert patches.strategic(POD, order)["spec"]["containers"] == POD["spec"]["containers"]


def test_strategic_replaces_other_lists() -> None:
    """A list without a merge key is replaced as a whole; service ports are keyed by port."""
    assert patches.strategic(POD, {"spec": {"tolerations": []}})["spec"]["tolerations"] == []
    service = {"ports": [{"port": 1, "name": "a"}]}
    merged = patches.strategic(service, {"ports": [{"port": 1, "name": "b"}, {"port": 2}]})
    assert merged == {"ports": [{"port": 1, "name": "b"}, {"port": 2}]}


@given(target=OBJECTS, patch=OBJECTS)
def test_strategic_equals_merge_without_keyed_lists(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """Without known field names both merges agree."""
    assert patches.strategic(target, patch) == patches.merge(target, patch)


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        ({"op": "add", "path": "/a/1", "value": 9}, {"a": [1, 9, 2], "b/c": {"d~": 0}}),
        ({"op": "add", "path": "/a/-", "value": 9}, {"a": [1, 2, 9], "b/c": {"d~": 0}}),
        ({"op": "remove", "path": "/a/0"}, {"a": [2], "b/c": {"d~": 0}}),
        ({"op": "replace", "path": "/b~1c/d~0", "value": 5}, {"a": [1, 2], "b/c": {"d~": 5}}),
        ({"op": "move", "from": "/a/0", "path": "/b~1c/x"}, {"a": [2], "b/c": {"d~": 0, "x": 1}}),
        ({"op": "copy", "from": "/a", "path": "/e"}, {"a": [1, 2], "b/c": {"d~": 0}, "e": [1, 2]}),
        ({"op": "test", "path": "/a/0", "value": 1}, {"a": [1, 2], "b/c": {"d~": 0}}),
        ({"op": "add", "path": "", "value": {}}, {}),
    ],
)
def test_json_patch_operations(operation: dict[str, Any], result: Any) -> None:
    """Every operation of RFC 6902, with escaped names."""
    assert patches.json_patch({"a": [1, 2], "b/c": {"d~": 0}}, [operation]) == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "add", "path": "/a/7", "value": 1},
        {"op": "add", "path": "/a/x", "value": 1},
        {"op": "add", "path": "/s/deeper", "value": 1},
        {"op": "test", "path": "/s", "value": "other"},
        {"op": "fly", "path": "/s"},
        {"op": "add"},
        "add",
    ],
)
def test_invalid_json_patch(operation: Any) -> None:
    """An impossible operation is refused as invalid."""
    with pytest.raises(statuses.ApiError) as refused:
        patches.json_patch({"a": [1], "s": "text"}, [operation])
    assert refused.value.code == 422


def test_json_patch_copy_is_not_an_alias() -> None:
    """Changing the copy later leaves the original alone."""
    operations = [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/b/-", "value": 1}]
    assert patches.json_patch({"a": []}, operations) == {"a": [], "b": [1]}


@pytest.mark.parametrize("body", [{}, None, "x"])
def test_json_patch_must_be_a_list(body: Any) -> None:
    """Anything else is a bad request."""
    with pytest.raises(statuses.ApiError) as refused:
        patches.json_patch({}, body)
    assert refused.value.code == 400


class Applied:
    """An object under server-side apply, without a server."""

    def __init__(self, **live: Any) -> None:
        self.live: dict[str, Any] = {"metadata": {"name": "x", "uid": "u"}, **live}
        self.managers: dict[str, patches.Fields] = {}

    def apply(self, manager: str, *, force: bool = False, **wanted: Any) -> dict[str, Any]:
        entry = Entry(kindtable.CONFIGMAPS, self.live, msgspec.json.encode(self.live), 1)
        self.live = patches.apply(entry, manager, wanted, self.managers, force=force)
        self.managers[manager] = patches.fields(wanted)
        return {name: value for name, value in self.live.items() if name != "metadata"}


def test_apply_removes_fields_no_longer_applied() -> None:
    """Only the manager's own former fields are removed."""
    thing = Applied(data={"foreign": "f"})
    thing.apply("one", data={"a": "1", "b": "2"})
    assert thing.apply("one", data={"a": "1"}) == {"data": {"foreign": "f", "a": "1"}}


def test_apply_conflicts_only_on_different_values() -> None:
    """Two managers may agree; whoever wants another value is told whose it is."""
    thing = Applied()
    thing.apply("one", data={"a": "1"})
    thing.apply("two", data={"a": "1"})
    with pytest.raises(statuses.ApiError) as refused:
        thing.apply("two", data={"a": "2"})
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert refused.value.details["causes"][0]["field"] == ".data.a"


def test_apply_by_force_takes_over() -> None:
    """After a forced apply the field belongs to the new manager alone."""
    thing = Applied()
    thing.apply("one", data={"a": "1", "b": "1"})
    assert thing.apply("two", force=True, data={"a": "2"}) == {"data": {"a": "2", "b": "1"}}
    assert thing.apply("one", data={"b": "1"}) == {"data": {"a": "2", "b": "1"}}
    assert thing.apply("two", data={}) == {"data": {"b": "1"}}


def test_shared_field_stays_while_another_applies_it() -> None:
    """A field that both applied stays when one stops applying it."""
    thing = Applied()
    thing.apply("one", data={"a": "1"})
    thing.apply("two", data={"a": "1"})
    assert thing.apply("one", data={}) == {"data": {"a": "1"}}


def test_apply_prunes_inside_keyed_lists() -> None:
    """A container or variable that is no longer applied goes, its neighbours stay."""
    thing = Applied(containers=[{"name": "foreign"}])
    variables = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    thing.apply("one", containers=[{"name": "x", "image": "i", "env": variables}, {"name": "y"}])
    result = thing.apply("one", containers=[{"name": "x", "image": "i", "env": variables[:1]}])
    assert result["containers"] == [{"name": "foreign"}, {"name": "x", "image": "i", "env": variables[:1]}]


@given(first=OBJECTS, second=OBJECTS)
def test_apply_of_one_manager_converges(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Applying is idempotent, and of a single manager's first wish only what it repeats stays."""
    thing = Applied()
    thing.apply("one", **without_nulls(first))
    once = copy.deepcopy(thing.apply("one", **without_nulls(second)))
    assert thing.apply("one", **without_nulls(second)) == once
    assert set(once) == set(without_nulls(second))
