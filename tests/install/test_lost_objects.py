"""Objects of a site with lost records, and bindings with another role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.install import sites
from tests.install.test_sharedobjects import RBAC, Cluster, Manifest, Site

from penstock import errors, wellknown
from penstock.install import adoption, inventory, planning, transactions
from penstock.render import rbac


class Strict(Cluster):
    """Refuses to change roleRef, like the API."""

    def request(self, method: str, path: str, *, body: Any = None) -> Manifest:
        live = self.objects.get(path)
        if method == "PATCH" and live and "roleRef" in live and body.get("roleRef") != live["roleRef"]:
            raise errors.KubeError("cannot change roleRef")
        return super().request(method, path, body=body)


@pytest.fixture
def cluster() -> Strict:
    return Strict()


def planner(one: Site, folder: Path) -> planning.Planner:
    """A planner of the same site with empty records."""
    return planning.Planner(one.site, inventory.Store(folder), one.cluster)


def adopted(one: Site, folder: Path) -> dict[str, inventory.ObjectRecord]:
    found = planner(one, folder)._finder
    return dict(found._objects(sites.known(one.site)))


def uninstalled(one: Site, objects: dict[str, inventory.ObjectRecord], folder: Path) -> None:
    """Uninstall with these records."""
    changes, _ = planner(one, folder)._removals(objects, inventory.Installed(objects=objects))
    transaction = transactions.Transaction(inventory.Store(folder), objects=one.cluster, restart=lambda: None)
    transaction.run((), changes, restart=False, installed=inventory.Installed())


def test_objects_managed_only_by_us_are_adopted(cluster: Strict, tmp_path: Path) -> None:
    """Uninstall removes them all."""
    one = Site(tmp_path / "a", cluster)
    found = adopted(one, tmp_path / "new")
    assert found.keys() == one.store.installed().objects.keys()
    assert not any(record.existed for record in found.values())
    uninstalled(one, found, tmp_path / "new")
    assert cluster.objects == {}


def test_namespace_with_another_manager_is_not_adopted(cluster: Strict, tmp_path: Path) -> None:
    """It may have existed before; bindings and roles are removed."""
    one = Site(tmp_path / "a", cluster)
    path = "/api/v1/namespaces/penstock-a"
    cluster.objects[path]["metadata"]["managedFields"].append({"manager": "kubectl-create"})
    found = adopted(one, tmp_path / "new")
    assert [key for key, record in found.items() if record.existed] == [path]
    uninstalled(one, found, tmp_path / "new")
    assert cluster.objects.keys() == {path}


def test_without_managed_fields_only_roles_and_accounts_are_removed(cluster: Strict, tmp_path: Path) -> None:
    one = Site(tmp_path / "a", cluster)
    for each in cluster.objects.values():
        each["metadata"].pop("managedFields", None)
    kinds = {
        record.manifest["kind"] for record in adopted(one, tmp_path / "new").values() if not record.existed
    }
    assert kinds == {*adoption.NAMED_BY_US}


def test_object_without_our_label_is_not_adopted(cluster: Strict, tmp_path: Path) -> None:
    one = Site(tmp_path / "a", cluster)
    name = next(path for path in cluster.objects if "/clusterroles/" in path)
    cluster.objects[name]["metadata"]["labels"] = {wellknown.LABEL_MANAGED_BY: "helm"}
    assert name not in adopted(one, tmp_path / "new")


def test_binding_with_another_role_is_recreated(cluster: Strict, tmp_path: Path) -> None:
    """The API lets nobody change roleRef."""
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


def test_dry_run_of_a_binding_with_another_role_removes_nothing(cluster: Strict) -> None:
    cluster.apply(rbac.render_binding(rbac.user("a"), role="one"))
    wanted = rbac.render_binding(rbac.user("a"), role="two")
    wanted["metadata"]["name"] = "one"
    cluster.apply(wanted, dry_run=True)
    assert cluster.objects[f"{RBAC}/clusterrolebindings/one"]["roleRef"]["name"] == "one"
