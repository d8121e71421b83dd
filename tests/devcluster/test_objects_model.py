"""Create, update, delete and finalizers against a model: whatever the order, store and model agree."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock_lab.devcluster import kindtable, statuses
from penstock_lab.devcluster.objects import DeleteOptions, Objects
from penstock_lab.devcluster.objectstore import Change, Store

NAMES = st.sampled_from(["a", "b", "c"])
FINALIZERS = st.lists(st.sampled_from(["x.io/1", "x.io/2"]), unique=True, max_size=2)
CM = kindtable.CONFIGMAPS


class ObjectsMachine(RuleBasedStateMachine):
    """The model knows of each object its data, its finalizers and whether it was deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.objects = Objects(self.store, holds_deletion=lambda pod: False)
        self.objects.create(kindtable.NAMESPACES, "", {"metadata": {"name": "ns"}})
        self.model: dict[str, tuple[str, tuple[str, ...], bool]] = {}
        self.changes: list[Change] = []
        self.store.listen(CM, self.changes.append)

    def entry(self, name: str) -> Any:
        return self.objects.get(CM, "ns", name)

    @rule(name=NAMES, data=st.text("xyz", max_size=2), finalizers=FINALIZERS)
    def create(self, name: str, data: str, finalizers: list[str]) -> None:
        obj = {"metadata": {"name": name, "finalizers": finalizers}, "data": {"k": data}}
        if name in self.model:
            with pytest.raises(statuses.ApiError, match="already exists"):
                self.objects.create(CM, "ns", obj)
        else:
            self.objects.create(CM, "ns", obj)
            self.model[name] = (data, tuple(finalizers), False)

    @precondition(lambda self: self.model)
    @rule(pick=st.randoms(use_true_random=False), data=st.text("xyz", max_size=2))
    def write(self, pick: Any, data: str) -> None:
        name = pick.choice(sorted(self.model))
        before = self.entry(name)
        after = self.objects.update(before, {**before.copy(), "data": {"k": data}})
        old, finalizers, deleted = self.model[name]
        assert (after.version == before.version) == (old == data)
        self.model[name] = (data, finalizers, deleted)

    @precondition(lambda self: self.model)
    @rule(pick=st.randoms(use_true_random=False), finalizers=FINALIZERS)
    def change_finalizers(self, pick: Any, finalizers: list[str]) -> None:
        name = pick.choice(sorted(self.model))
        before = self.entry(name)
        obj = before.copy()
        obj["metadata"]["finalizers"] = finalizers
        self.objects.update(before, obj)
        data, _, deleted = self.model[name]
        self.model[name] = (data, tuple(finalizers), deleted)
        if deleted and not finalizers:
            del self.model[name]

    @precondition(lambda self: self.model)
    @rule(pick=st.randoms(use_true_random=False), with_uid=st.booleans())
    def delete(self, pick: Any, with_uid: bool) -> None:
        name = pick.choice(sorted(self.model))
        before = self.entry(name)
        self.objects.delete(before, DeleteOptions(uid=before.uid if with_uid else None))
        data, finalizers, _ = self.model[name]
        self.model[name] = (data, finalizers, True)
        if not finalizers:
            del self.model[name]

    @precondition(lambda self: self.model)
    @rule(pick=st.randoms(use_true_random=False))
    def stale_write_is_refused(self, pick: Any) -> None:
        name = pick.choice(sorted(self.model))
        entry = self.entry(name)
        obj = entry.copy()
        obj["metadata"]["resourceVersion"] = "1"
        with pytest.raises(statuses.ApiError, match="the object has been modified"):
            self.objects.update(entry, obj)

    @invariant()
    def store_is_the_model(self) -> None:
        found = {
            entry.key[1]: (
                entry.obj["data"]["k"],
                tuple(entry.obj["metadata"].get("finalizers") or ()),
                "deletionTimestamp" in entry.obj["metadata"],
            )
            for entry in self.store.all(CM)
        }
        assert found == self.model

    @invariant()
    def history_tells_the_same_story(self) -> None:
        known: set[str] = set()
        versions = [change.entry.version for change in self.changes]
        assert versions == sorted(set(versions))
        for change in self.changes:
            name = change.entry.key[1]
            assert (change.type == "ADDED") == (name not in known)
            (known.discard if change.type == "DELETED" else known.add)(name)
        assert known == set(self.model)


ObjectsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestObjects = ObjectsMachine.TestCase
