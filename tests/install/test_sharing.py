"""Several sites on one Kubernetes: whoever goes leaves the others what they need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.install import sites

from penstock import errors
from penstock.install import access, applying, planning, records, sharing, transactions
from penstock.kube import kubeconfig
from penstock.render import rbac

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLASS = "/apis/scheduling.k8s.io/v1/priorityclasses/jobs"
ROLES = {f"{RBAC}/clusterroles/penstockd", f"{RBAC}/clusterroles/penstock-user"}
Manifest = dict[str, Any]


class Cluster(access.Cluster):
    """Keeps objects by their paths; there is one field manager, as for all sites of ours."""

    def __init__(self) -> None:
        super().__init__(kubeconfig.Access(server="http://nowhere"))
        self.objects: dict[str, Manifest] = {}
        self.forbidden = ""

    def request(
        self, method: str, path: str, *, body: Any = None, kind: str = "application/json"
    ) -> Manifest:
        path = path.partition("?")[0]
        if self.forbidden and path.endswith(self.forbidden):
            raise errors.KubeNotAllowed("not yours")
        if method == "PATCH":
            self.objects[path] = body
        elif method == "GET" and path.endswith(("/pods", "bindings")):
            place, _, plural = path.rpartition("/")
            return {"items": [each for key, each in self.objects.items() if _is_in(key, place, plural)]}
        elif path not in self.objects:
            raise errors.KubeNotFound(path)
        elif method == "DELETE":
            return self.objects.pop(path)
        return self.objects[path]

    def roles(self) -> set[str]:
        """Those that still say something."""
        return {path for path in ROLES if self.objects.get(path, {}).get("rules")}


def _is_in(path: str, place: str, plural: str) -> bool:
    return path.startswith(f"{place}/") and path.split("/")[-2] == plural


class Site:
    """One of several sites."""

    def __init__(self, root: Path, cluster: Cluster) -> None:
        words = f"  namespace: penstock-{root.name}\n  namespace_pattern: {root.name}-{{user}}"
        self.site = sites.site(("  namespace_pattern: user-{user}", words))
        self.cluster = cluster
        self.store = records.Store(root)
        with self.store.locked():
            self.planner = planning.Planner(self.site, self.store, cluster)
        changes, _, made = self.planner._object_changes(sites.known(self.site), records.Installed())
        self.run(changes, records.Installed(objects=made))

    def run(self, changes: tuple[transactions.ObjectChange, ...], installed: records.Installed) -> None:
        transaction = transactions.Transaction(self.store, objects=self.cluster, restart=lambda: None)
        transaction.run((), changes, restart=False, installed=installed)

    def uninstall(self) -> tuple[str, ...]:
        plan = self.planner.uninstall()
        self.run(plan.objects, plan.installed)
        return plan.kept


@pytest.fixture
def cluster() -> Cluster:
    """An empty one."""
    return Cluster()


def bind(cluster: Cluster, namespace: str) -> None:
    """What an administrator does for a user."""
    binding = rbac.render_user_binding(rbac.user("alice"))
    binding["metadata"]["namespace"] = namespace
    cluster.apply(binding)


@pytest.mark.parametrize(("first", "second"), ["ab", "ba"], ids=["maker goes", "finder goes"])
def test_another_sites_rights_are_not_taken_away(
    cluster: Cluster, tmp_path: Path, first: str, second: str
) -> None:
    """Whichever of the two had made the role, and the plan says for whom it is kept."""
    found = {name: Site(tmp_path / name, cluster) for name in "ab"}
    kept = found[first].uninstall()
    binding = f"ClusterRoleBinding penstock-{second}-penstockd"
    assert kept == (
        f"PriorityClass jobs: other sites may use it: {binding}",
        f"ClusterRole penstockd: bound to it: {binding}",
    )
    assert cluster.objects[CLASS]["value"] is not None
    assert f"{RBAC}/clusterroles/penstockd" in cluster.roles()
    assert f"{RBAC}/clusterrolebindings/penstock-{first}-penstockd" not in cluster.objects


def test_a_site_that_is_alone_takes_everything_along(cluster: Cluster, tmp_path: Path) -> None:
    """Its own bindings keep nothing, nor do those in namespaces that go."""
    one = Site(tmp_path / "a", cluster)
    homes = [each for path, each in cluster.objects.items() if path.startswith("/api/v1/namespaces/a-")]
    bind(cluster, next(each["metadata"]["name"] for each in homes if each["kind"] == "Namespace"))
    assert one.uninstall() == ()
    assert cluster.roles() == set()


def test_a_role_that_an_administrator_gave_to_a_user_stays(cluster: Cluster, tmp_path: Path) -> None:
    """In a namespace that is not ours to remove."""
    one = Site(tmp_path / "a", cluster)
    for number in range(5):
        bind(cluster, f"other-{number}")
    (kept,) = one.uninstall()
    assert kept == (
        "ClusterRole penstock-user: bound to it: RoleBinding other-0/penstock-user, "
        "RoleBinding other-1/penstock-user, RoleBinding other-2/penstock-user and 2 more"
    )
    assert cluster.roles() == {f"{RBAC}/clusterroles/penstock-user"}


def test_not_being_allowed_to_look_is_not_seeing_nobody(cluster: Cluster, tmp_path: Path) -> None:
    """The roles stay, and the rest goes."""
    one = Site(tmp_path / "a", cluster)
    cluster.forbidden = "/rolebindings"
    kept = one.uninstall()
    assert [words.partition(":")[0] for words in kept] == [
        "PriorityClass jobs",
        "ClusterRole penstock-user",
        "ClusterRole penstockd",
    ]
    assert "cannot be seen (not yours)" in kept[0]
    assert cluster.roles() == ROLES


def test_a_namespace_with_pods_stays(cluster: Cluster, tmp_path: Path) -> None:
    """They may be anybody's."""
    one = Site(tmp_path / "a", cluster)
    cluster.objects["/api/v1/namespaces/penstock-a/pods/x"] = {}
    assert one.uninstall() == ("Namespace penstock-a: pods are in it",)
    assert "/api/v1/namespaces/penstock-a" in cluster.objects


class Failing(Cluster):
    """Takes everything but one kind of object."""

    def request(
        self, method: str, path: str, *, body: Any = None, kind: str = "application/json"
    ) -> Manifest:
        if method == "PATCH" and "clusterrolebindings" in path:
            raise errors.KubeError("no more bindings")
        return super().request(method, path, body=body, kind=kind)


def test_a_first_apply_that_fails_leaves_other_sites_their_rights(cluster: Cluster, tmp_path: Path) -> None:
    """To Kubernetes all sites are one manager: giving up our fields would empty the role of all."""
    Site(tmp_path / "a", cluster)
    before = dict(cluster.objects)
    shared = Failing()
    shared.objects = cluster.objects
    with pytest.raises(errors.InstallError, match="everything is as it was before"):
        Site(tmp_path / "b", shared)
    assert cluster.roles() == ROLES
    assert shared.objects == before


def test_what_an_object_of_somebody_elses_said_is_said_again(cluster: Cluster, tmp_path: Path) -> None:
    """Applying takes fields over by force: an older role, or one that an administrator wrote."""
    path = f"{RBAC}/clusterroles/penstockd"
    older = rbac.render_role() | {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
    shared = Failing()
    shared.objects[path] = older | {"aggregationRule": None}
    with pytest.raises(errors.InstallError, match="everything is as it was before"):
        Site(tmp_path / "b", shared)
    assert shared.objects[path] == older


def test_going_back_takes_nothing_that_others_use_by_now(cluster: Cluster, tmp_path: Path) -> None:
    """A first apply was killed before it had made anything; then another site was installed."""
    one = Site(tmp_path / "a", Cluster())
    changes, _, made = one.planner._object_changes(sites.known(one.site), records.Installed())
    changes = tuple(msgspec.structs.replace(each, existed=False, found=None) for each in changes)
    Site(tmp_path / "b", cluster)
    before = dict(cluster.objects)

    def killed(step: str) -> None:
        raise KeyboardInterrupt

    def transaction(**more: Any) -> transactions.Transaction:
        in_use = lambda found: sharing.used(cluster, found, {})  # noqa: E731  # as Installer does
        return transactions.Transaction(
            one.store, objects=cluster, restart=lambda: None, in_use=in_use, **more
        )

    installed = records.Installed(objects=made)
    with pytest.raises(KeyboardInterrupt):
        transaction(observe=killed).run((), changes, restart=False, installed=installed)
    assert "taken back" in transaction().recover()
    gone = before.keys() - cluster.objects.keys()
    assert gone <= {f"{RBAC}/clusterroles/penstock-user"}, "nobody is bound to that role"
    assert cluster.objects[f"{RBAC}/clusterroles/penstockd"] == before[f"{RBAC}/clusterroles/penstockd"]


def test_the_installer_looks_who_uses_what_it_takes_back(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it goes back, and not only before it uninstalls."""
    one = Site(tmp_path / "a", cluster)
    monkeypatch.setattr(access, "admin", lambda site: cluster)
    installer = applying.Installer(one.site)
    installer.store = one.store
    made = {path: records.ObjectRecord(cluster.objects[path]) for path in (CLASS, *ROLES)}
    assert installer._in_use(made) == set(), "an earlier apply's own binding is nobody else's"
    Site(tmp_path / "b", cluster)
    assert installer._in_use(made) == {CLASS, f"{RBAC}/clusterroles/penstockd"}


def test_the_last_site_leaves_a_class_that_it_had_found(cluster: Cluster, tmp_path: Path) -> None:
    """It is not ours to remove, and Kubernetes takes no class without a value: going would fail."""
    found = {name: Site(tmp_path / name, cluster) for name in "ab"}
    found["a"].uninstall()
    found["b"].uninstall()
    assert cluster.objects[CLASS]["value"] is not None


def test_what_an_administrators_object_said_is_said_again_after_us(cluster: Cluster, tmp_path: Path) -> None:
    """Our values replaced his; he gets his back, not an object without any, however often we applied."""
    path = f"{RBAC}/clusterroles/penstock-user"
    his = rbac.render_user_role() | {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
    cluster.objects[path] = his
    one = Site(tmp_path / "a", cluster)
    assert cluster.objects[path]["rules"] == rbac.render_user_role()["rules"]
    changes, _, made = one.planner._object_changes(sites.known(one.site), one.store.installed())
    assert changes == ()
    assert made == one.store.installed().objects
    one.uninstall()
    assert cluster.objects[path] == his
