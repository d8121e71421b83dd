"""Objects of a site whose records are lost, and bindings whose role has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.install import sites
from tests.install.test_sharedobjects import RBAC, Cluster, Manifest, Site

from penstock import errors, wellknown
from penstock.install import adoption, inventory, plans, transactions
from penstock.render import rbac


class Strict(Cluster):
    """As the API is about bindings."""

    def request(self, method: str, path: str, *, body: Any = None) -> Manifest:
        live = self.objects.get(path)
        if method == "PATCH" and live and "roleRef" in live and body.get("roleRef") != live["roleRef"]:
            raise errors.KubeError("cannot change roleRef")
        return super().request(method, path, body=body)


@pytest.fixture
def cluster() -> Strict:
    """An empty one."""
    return Strict()


def planner(one: Site, folder: Path) -> plans.Planner:
    """Of the same site, with records elsewhere: none are there."""
    return plans.Planner(one.site, inventory.Store(folder), one.cluster)


def adopted(one: Site, folder: Path) -> dict[str, inventory.ObjectRecord]:
    found = planner(one, folder)._finder
    return dict(found._objects(sites.known(one.site)))


def taken_back(one: Site, objects: dict[str, inventory.ObjectRecord], folder: Path) -> None:
    """What uninstall does with these records."""
    changes, _ = planner(one, folder)._removals(objects, inventory.Installed(objects=objects))
    transaction = transactions.Transaction(inventory.Store(folder), objects=one.cluster, restart=lambda: None)
    transaction.run((), changes, restart=False, installed=inventory.Installed())


def test_objects_that_only_we_made_are_ours_again(cluster: Strict, tmp_path: Path) -> None:
    """Nothing is left of them after uninstall."""
    one = Site(tmp_path / "a", cluster)
    found = adopted(one, tmp_path / "new")
    assert found.keys() == one.store.installed().objects.keys()
    assert not any(record.existed for record in found.values())
    taken_back(one, found, tmp_path / "new")
    assert cluster.objects == {}


def test_a_namespace_that_somebody_else_knows_is_not_ours(cluster: Strict, tmp_path: Path) -> None:
    """It may have been there before us, with all that is in it; our bindings and roles go."""
    one = Site(tmp_path / "a", cluster)
    path = "/api/v1/namespaces/penstock-a"
    cluster.objects[path]["metadata"]["managedFields"].append({"manager": "kubectl-create"})
    found = adopted(one, tmp_path / "new")
    assert [key for key, record in found.items() if record.existed] == [path]
    taken_back(one, found, tmp_path / "new")
    assert cluster.objects.keys() == {path}


def test_without_knowing_who_made_it_nothing_but_roles_and_accounts_is_removed(
    cluster: Strict, tmp_path: Path
) -> None:
    """An API that does not tell who says what."""
    one = Site(tmp_path / "a", cluster)
    for each in cluster.objects.values():
        each["metadata"].pop("managedFields", None)
    kinds = {
        record.manifest["kind"] for record in adopted(one, tmp_path / "new").values() if not record.existed
    }
    assert kinds == {*adoption.NAMED_BY_US}


def test_an_object_without_our_label_is_not_ours(cluster: Strict, tmp_path: Path) -> None:
    """Whatever its name is."""
    one = Site(tmp_path / "a", cluster)
    name = next(path for path in cluster.objects if "/clusterroles/" in path)
    cluster.objects[name]["metadata"]["labels"] = {wellknown.LABEL_MANAGED_BY: "helm"}
    assert name not in adopted(one, tmp_path / "new")


def test_a_binding_to_another_role_is_made_anew(cluster: Strict, tmp_path: Path) -> None:
    """The API lets nobody change roleRef; apply failed at that, and so did every uninstall after it."""
    fresh = Site(tmp_path / "a", Strict())
    path = next(key for key in fresh.cluster.objects if "/clusterrolebindings/" in key)
    theirs = rbac.render_binding(rbac.user("somebody"), role="older")
    theirs["metadata"]["name"] = path.rpartition("/")[2]
    cluster.objects[path] = theirs
    one = Site(tmp_path / "b" / "a", cluster)
    assert cluster.objects[path]["roleRef"]["name"] != "older"
    one.uninstall()
    assert cluster.objects[path]["roleRef"] == theirs["roleRef"]
    assert cluster.objects[path]["subjects"] == theirs["subjects"]


def test_a_dry_run_of_such_a_binding_removes_nothing(cluster: Strict) -> None:
    """It is only tried."""
    cluster.apply(rbac.render_binding(rbac.user("a"), role="one"))
    wanted = rbac.render_binding(rbac.user("a"), role="two")
    wanted["metadata"]["name"] = "one"
    cluster.apply(wanted, dry_run=True)
    assert cluster.objects[f"{RBAC}/clusterrolebindings/one"]["roleRef"]["name"] == "one"
