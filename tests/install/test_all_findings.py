"""Plans list folders and the kubeconfig, too; `uninstall` lists what remains."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import click.testing
import pytest
from tests.install.places import Place

from penstock import errors, wellknown
from penstock.cli import sites
from penstock.hooks import wire
from penstock.install import installers, leftovers, planning
from penstock.kube import kinds, types

Manifest = dict[str, Any]


class Cluster:
    """Has namespaces only."""

    def __init__(self, **namespaces: str) -> None:
        self.namespaces = namespaces

    def get_settled(self, manifest: Manifest) -> None:
        return None

    def items(self, kind: kinds.Kind, struct: type[types.Object]) -> list[types.Object]:
        assert kind == kinds.NAMESPACES
        named = self.namespaces.items()
        return [struct(metadata=types.Meta(name=name, labels={label: "1"})) for name, label in named]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A site with a mounted NAS."""
    if os.geteuid() != 0:
        pytest.skip("files get owners: needs root")
    made = Place(tmp_path)
    (tmp_path / "nas").mkdir()
    made.text += f"nas: {{path: {tmp_path}/nas}}\nkubernetes: {{kubeconfig: {tmp_path}/k/p.kubeconfig}}\n"
    for part in ("results", "intake"):
        made.text += f"{part}: {{config: {tmp_path}/etc/{part}.json, state_dir: {tmp_path}/{part}}}\n"
    monkeypatch.setattr(installers, "SYSTEMD", tmp_path / "none")
    return made


def planned(place: Place, cluster: Any) -> list[tuple[str, str, str]]:
    with place.store.locked():
        return list(planning.Planner(place.site, place.store, cluster).install().lines())


def test_plan_lists_missing_folders_and_kubeconfig(place: Place, tmp_path: Path) -> None:
    """With its token, which never expires; existing ones are not listed."""
    lines = planned(place, Cluster())
    for folder in ("nas/slurm-jobs/submit", "nas/results", "results/running"):
        assert ("add", "folder", str(tmp_path / folder)) in lines
    said = "\n".join(name for _, _, name in lines)
    assert (
        f"{tmp_path}/k/p.kubeconfig (for penstockd, with the token of Secret penstock-system/penstockd)"
        in said
    )
    assert "Secret penstock-system/penstockd (a token that never expires; deleting the Secret revokes" in said
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "p.kubeconfig").touch()
    (tmp_path / "nas" / "results").mkdir()
    lines = planned(place, Cluster())
    assert "never expires" not in str(lines)
    assert ("add", "folder", str(tmp_path / "nas" / "results")) not in lines
    assert "never expires" not in str(planned(place, None)), "without Kubernetes none is made"


def test_plan_that_only_creates_a_folder_is_not_empty(place: Place) -> None:
    place.install()
    with place.store.locked():
        plan = place.planner.install()
    assert {line[1] for line in plan.lines()} == {"folder"}
    assert not plan.empty


def test_render_diff_shows_the_edit_of_slurm_conf(place: Place, tmp_path: Path) -> None:
    """Until it is applied."""
    site_file = tmp_path / "site.yaml"
    site_file.write_text(place.text)

    def diff(*only: str) -> click.testing.Result:
        words = [word for kind in only for word in ("--only", kind)]
        return click.testing.CliRunner().invoke(sites.render, ["--site", str(site_file), "--diff", *words])

    before = diff("slurm")
    assert before.exit_code == 1
    assert f"+++ site {place.conf}\n" in before.output
    assert "\n-Epilog=/etc/slurm/epilog.sh  # the site's own\n" in before.output
    assert "\n+#penstock# Epilog=/etc/slurm/epilog.sh" in before.output
    assert f"+include {place.etc}/penstock.conf\n" in before.output
    assert f"+++ site {place.conf}\n" not in diff("hooks").output
    place.install()
    after = diff("slurm", "hooks", "penstockd", "units")
    assert (after.output, after.exit_code) == ("", 0)


def test_leftovers_are_listed_with_a_way_to_remove_them(place: Place, tmp_path: Path) -> None:
    """Namespaces of users, folders, accounts, slurmds, but no foreign namespaces."""
    place.text += "accounts: {lab: {users: {ada: {}}}}\n"
    (tmp_path / "nas" / "results").mkdir()
    cluster: Any = Cluster(**{"user-ada": wellknown.LABEL_USER_ID, "kube-system": "x"})
    said = list(leftovers.remaining(place.site, cluster))
    assert said == [
        "namespaces of jobs: user-ada (`kubectl delete namespace NAME`)",
        f"folders: {tmp_path}/nas/results",
        "slurmds of nodes that are no longer in slurm.conf: v1, v2 (stop them)",
        "accounts and users in Slurm's accounting (`sacctmgr`)",
    ]


def test_running_penstockd_is_listed_as_leftover(place: Place, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "run" / "p.sock"))
        listening.listen()

        def answer() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(wire.pack("pong"))

        threading.Thread(target=answer, daemon=True).start()
        said = "\n".join(leftovers.remaining(place.site, None))
    assert f"penstockd, which listens on {tmp_path}/run/p.sock: stop it" in said


def test_unreachable_kubernetes_may_have_leftover_namespaces(place: Place) -> None:
    class Away:
        def items(self, *about: object) -> list[types.Object]:
            raise errors.KubeUnavailable("no answer")

    away: Any = Away()
    assert "namespaces of jobs, if any: no answer" in list(leftovers.remaining(place.site, away))
