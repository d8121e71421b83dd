"""Several sites on one Kubernetes: uninstalling one keeps what the others need."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.install import clusters, sites

from penstock import errors
from penstock.install import installers, inventory, kubeadmin, planning, sharedobjects, transactions
from penstock.kube import kubeconfig
from penstock.render import rbac

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLASS = "/apis/scheduling.k8s.io/v1/priorityclasses/jobs"
Manifest = dict[str, Any]


def roles_of(name: str) -> set[str]:
    """API paths of a site's roles."""
    return {f"{RBAC}/clusterroles/penstockd-{name}", f"{RBAC}/clusterroles/penstock-user-{name}"}


class Cluster(clusters.Cluster):
    """Stores objects by path, with managedFields."""

    def __init__(self) -> None:
        super().__init__(kubeconfig.Access(server="http://nowhere"))
        self.objects: dict[str, Manifest] = {}
        self.forbidden = ""

    def request(self, method: str, path: str, *, body: Any = None) -> Manifest:
        if self.forbidden and path.endswith(self.forbidden):
            raise errors.KubeNotAllowed("not yours")
        if method == "PATCH":
            self.objects[path] = self._noted(body, self.objects.get(path))
        elif method == "GET" and path.endswith(("/pods", "bindings")):
            place, _, plural = path.rpartition("/")
            return {"items": [each for key, each in self.objects.items() if _is_in(key, place, plural)]}
        elif path not in self.objects:
            raise errors.KubeNotFound(path)
        elif method == "DELETE":
            return self.objects.pop(path)
        return self.objects[path]

    def _noted(self, body: Manifest, live: Manifest | None) -> Manifest:
        """Update managedFields like the API."""
        known = ((live or {}).get("metadata") or {}).get("managedFields") or []
        mine = {"manager": self.manager, "operation": "Apply"}
        managers = [*(each for each in known if each != mine), mine]
        return {**body, "metadata": {**body["metadata"], "managedFields": managers}}

    def roles(self) -> set[str]:
        """Roles that still have rules."""
        found = (path for path in self.objects if "/clusterroles/" in path)
        return {path for path in found if self.objects[path].get("rules")}

    def said(self, path: str) -> Manifest:
        """An object without managedFields."""
        found = copy.deepcopy(self.objects[path])
        found["metadata"].pop("managedFields", None)
        return found


def _is_in(path: str, place: str, plural: str) -> bool:
    return path.startswith(f"{place}/") and path.split("/")[-2] == plural


class Site:
    def __init__(self, root: Path, cluster: Cluster, *, home: str = "") -> None:
        home = home or root.name
        words = f"  namespace: penstock-{home}\n  namespace_pattern: {home}-{{user}}"
        named = ("cluster: hall", f"cluster: {root.name}")
        self.site = sites.site(named, ("  namespace_pattern: user-{user}", words))
        self.cluster = copy.copy(cluster)
        self.cluster.manager = kubeadmin.manager(self.site)
        self.store = inventory.Store(root)
        with self.store.locked():
            self.planner = planning.Planner(self.site, self.store, self.cluster)
        changes, _, made = self.planner._object_changes(sites.known(self.site), inventory.Installed())
        self.run(changes, inventory.Installed(objects=made))

    def run(self, changes: tuple[transactions.ObjectChange, ...], installed: inventory.Installed) -> None:
        transaction = transactions.Transaction(self.store, objects=self.cluster, restart=lambda: None)
        transaction.run((), changes, restart=False, installed=installed)

    def uninstall(self) -> tuple[str, ...]:
        plan = self.planner.uninstall()
        self.run(plan.objects, plan.installed)
        return plan.kept


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def bind(cluster: Cluster, namespace: str) -> None:
    """Bind our user role, like an administrator."""
    binding = rbac.render_user_binding(rbac.user("alice"))
    binding["metadata"]["namespace"] = namespace
    binding["roleRef"]["name"] = "penstock-user-a"
    cluster.apply(binding)


@pytest.mark.parametrize(("first", "second"), ["ab", "ba"], ids=["maker goes", "finder goes"])
def test_uninstall_keeps_another_sites_permissions(
    cluster: Cluster, tmp_path: Path, first: str, second: str
) -> None:
    """Each has its own roles; a class that both use stays, and the plan says for whom."""
    found = {name: Site(tmp_path / name, cluster) for name in "ab"}
    kept = found[first].uninstall()
    assert kept == (f"PriorityClass jobs: applied by others, too: penstock-{second}",)
    assert cluster.objects[CLASS]["value"] is not None
    assert cluster.roles() == roles_of(second)
    assert f"{RBAC}/clusterrolebindings/penstockd-{first}" not in cluster.objects
    assert f"{RBAC}/clusterrolebindings/penstockd-{second}" in cluster.objects


@pytest.mark.parametrize(("first", "second"), ["ab", "ba"], ids=["maker goes", "finder goes"])
def test_uninstall_keeps_namespaces_shared_with_another_site(
    cluster: Cluster, tmp_path: Path, first: str, second: str
) -> None:
    """Whoever had created them."""
    found = {name: Site(tmp_path / name, cluster, home="all") for name in "ab"}
    wanted = set(found[second].store.installed().objects)
    found[first].uninstall()
    assert wanted <= cluster.objects.keys()
    assert cluster.roles() == roles_of(second)
    assert found[second].uninstall() == ()
    assert cluster.roles() == set()
    assert not [path for path in cluster.objects if path.startswith(RBAC)]


def test_without_managed_fields_bindings_show_other_sites(cluster: Cluster, tmp_path: Path) -> None:
    found = {name: Site(tmp_path / name, cluster, home="all") for name in "ab"}
    for each in cluster.objects.values():
        each["metadata"].pop("managedFields", None)
    kept = found["a"].uninstall()
    words = "used by ClusterRoleBinding penstockd-b"
    assert f"Namespace penstock-all: {words}" in kept
    assert f"ServiceAccount penstockd: {words}" in kept
    assert "PriorityClass jobs: other sites may use it: ClusterRoleBinding penstockd-b" in kept


def test_last_site_removes_everything(cluster: Cluster, tmp_path: Path) -> None:
    """Its own bindings keep nothing, nor do those in removed namespaces."""
    one = Site(tmp_path / "a", cluster)
    homes = [each for path, each in cluster.objects.items() if path.startswith("/api/v1/namespaces/a-")]
    bind(cluster, next(each["metadata"]["name"] for each in homes if each["kind"] == "Namespace"))
    assert one.uninstall() == ()
    assert cluster.roles() == set()


def test_role_bound_by_an_administrator_stays(cluster: Cluster, tmp_path: Path) -> None:
    """In a namespace that is not ours."""
    one = Site(tmp_path / "a", cluster)
    for number in range(5):
        bind(cluster, f"other-{number}")
    (kept,) = one.uninstall()
    assert kept == (
        "ClusterRole penstock-user-a: bound to it: RoleBinding other-0/penstock-user, "
        "RoleBinding other-1/penstock-user, RoleBinding other-2/penstock-user and 2 more"
    )
    assert cluster.roles() == {f"{RBAC}/clusterroles/penstock-user-a"}


def test_forbidden_lists_keep_what_others_may_use(cluster: Cluster, tmp_path: Path) -> None:
    """The rest is removed."""
    one = Site(tmp_path / "a", cluster)
    one.cluster.forbidden = "rolebindings"
    kept = one.uninstall()
    assert {words.partition(" ")[0] for words in kept} == {
        "PriorityClass", "Namespace", "ServiceAccount", "ClusterRole",
    }  # fmt: skip
    assert "cannot find out whether others use it (not yours)" in kept[0]
    assert cluster.roles() == roles_of("a")


def test_namespace_with_pods_stays(cluster: Cluster, tmp_path: Path) -> None:
    """They may be anybody's."""
    one = Site(tmp_path / "a", cluster)
    cluster.objects["/api/v1/namespaces/penstock-a/pods/x"] = {}
    assert one.uninstall() == ("Namespace penstock-a: pods are in it",)
    assert "/api/v1/namespaces/penstock-a" in cluster.objects


class Failing(Cluster):
    """Refuses one kind of object."""

    def request(self, method: str, path: str, *, body: Any = None) -> Manifest:
        if method == "PATCH" and "clusterrolebindings" in path:
            raise errors.KubeError("no more bindings")
        return super().request(method, path, body=body)


def test_failed_first_apply_keeps_other_sites_permissions(cluster: Cluster, tmp_path: Path) -> None:
    Site(tmp_path / "a", cluster)
    before = {path: cluster.said(path) for path in cluster.objects}
    shared = Failing()
    shared.objects = cluster.objects
    with pytest.raises(errors.InstallError, match="everything is as it was before"):
        Site(tmp_path / "b", shared)
    assert cluster.roles() == roles_of("a")
    assert {path: cluster.said(path) for path in cluster.objects} == before


def test_rollback_skips_objects_not_yet_changed(cluster: Cluster, tmp_path: Path) -> None:
    """Restoring an administrator's object would make its fields ours."""
    shared = Failing()
    shared.objects[CLASS] = {"kind": "PriorityClass", "metadata": {"name": "jobs"}, "value": 1}
    with pytest.raises(errors.InstallError, match="everything is as it was before"):
        Site(tmp_path / "b", shared)
    assert shared.objects == {CLASS: {"kind": "PriorityClass", "metadata": {"name": "jobs"}, "value": 1}}


def test_rollback_restores_fields_taken_over_from_others(cluster: Cluster, tmp_path: Path) -> None:
    """Applying takes fields over by force."""
    path = f"{RBAC}/clusterroles/penstockd-b"
    older = rbac.render_role(name="penstockd-b") | {
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    }
    shared = Failing()
    shared.objects[path] = older | {"aggregationRule": None}
    with pytest.raises(errors.InstallError, match="everything is as it was before"):
        Site(tmp_path / "b", shared)
    assert shared.said(path) == older


def test_rollback_keeps_what_others_use_by_now(cluster: Cluster, tmp_path: Path) -> None:
    """A first apply was killed before it had created anything; then another site was installed."""
    one = Site(tmp_path / "a", Cluster())
    changes, _, made = one.planner._object_changes(sites.known(one.site), inventory.Installed())
    changes = tuple(msgspec.structs.replace(each, existed=False, found=None) for each in changes)
    Site(tmp_path / "b", cluster, home="a")
    before = dict(cluster.objects)

    def killed(step: str) -> None:
        raise KeyboardInterrupt

    def transaction(**more: Any) -> transactions.Transaction:
        in_use = lambda found: sharedobjects.used(cluster, found, {})  # noqa: E731  # as Installer does
        return transactions.Transaction(
            one.store, objects=cluster, restart=lambda: None, in_use=in_use, **more
        )

    installed = inventory.Installed(objects=made)
    with pytest.raises(KeyboardInterrupt):
        transaction(observe=killed).run((), changes, restart=False, installed=installed)
    assert "rolled back" in transaction().recover()
    assert cluster.objects == before


def test_installer_checks_uses_before_rollback(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Site(tmp_path / "a", cluster)
    monkeypatch.setattr(kubeadmin, "admin", lambda site: one.cluster)
    installer = installers.Installer(one.site)
    installer.store = one.store
    made = {path: inventory.ObjectRecord(cluster.objects[path]) for path in (CLASS, *roles_of("a"))}
    assert installer._in_use(made) == set(), "an earlier apply's own binding is nobody else's"
    Site(tmp_path / "b", cluster)
    assert installer._in_use(made) == {CLASS}


def test_last_site_keeps_a_class_that_existed_before(cluster: Cluster, tmp_path: Path) -> None:
    """Kubernetes accepts no class without a value."""
    found = {name: Site(tmp_path / name, cluster) for name in "ab"}
    found["a"].uninstall()
    found["b"].uninstall()
    assert cluster.objects[CLASS]["value"] is not None


def test_uninstall_restores_values_of_an_administrators_object(cluster: Cluster, tmp_path: Path) -> None:
    """However often we have applied."""
    path = f"{RBAC}/clusterroles/penstock-user-a"
    his = rbac.render_user_role(name="penstock-user-a") | {
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    }
    cluster.objects[path] = his
    one = Site(tmp_path / "a", cluster)
    assert cluster.objects[path]["rules"] == rbac.render_user_role()["rules"]
    changes, _, made = one.planner._object_changes(sites.known(one.site), one.store.installed())
    assert changes == ()
    assert made == one.store.installed().objects
    one.uninstall()
    assert cluster.said(path) == his
