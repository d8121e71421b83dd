"""Plans without a Slurm or a Kubernetes: install, change, take back, with somebody editing in between."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock import errors
from penstock.install import planning, records, transactions
from penstock.site import loading, schema

CONF = """\
ClusterName=hall
SlurmctldHost=head
AuthInfo=socket=/run/munge.sock
Epilog=/etc/slurm/epilog.sh  # the site's own
NodeName=n1 CPUs=8 RealMemory=32768
PartitionName=old Nodes=n1 Default=YES
"""
LUA = "function slurm_job_submit(job, parts, uid) return slurm.SUCCESS end\nreturn slurm.SUCCESS\n"
SITE = """\
cluster: hall
slurm: {{conf: {root}/etc/slurm.conf, user: root, release: "22.05", gpu_device_dir: {root}/dev}}
penstockd:
  socket: {root}/run/p.sock
  config: {root}/etc/penstockd.json
  state_dir: {root}/state
  libexec: {root}/libexec
  units: {root}/units
registry: {{default_image: "base:1"}}
node_groups:
  known: {{nodes: n1, cpus: 8, memory: 32768Mi}}
  new: {{nodes: "v[1-2]", cpus: 4, memory: 8Gi, gpus: 2, slurmd: {{host: head}}}}
partitions:
  k8s: {{nodes: [known, new]}}
"""


class Place:
    """A site in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.etc = root / "etc"
        self.etc.mkdir()
        self.conf = self.etc / "slurm.conf"
        self.conf.write_text(CONF)
        (self.etc / "job_submit.lua").write_text(LUA)
        self.text = SITE.format(root=root)
        self.store = records.Store(root / "state" / "installed")
        self.restarts = 0

    @property
    def site(self) -> schema.Site:
        return loading.loads(self.text.encode())

    @property
    def planner(self) -> planning.Planner:
        return planning.Planner(self.site, self.store, None)

    def run(self, plan: planning.Plan) -> planning.Plan:
        def restart() -> None:
            self.restarts += 1

        transaction = transactions.Transaction(self.store, objects=None, restart=restart)
        transaction.run(plan.files, plan.objects, restart=plan.restart, installed=plan.installed)
        return plan

    def install(self) -> planning.Plan:
        with self.store.locked():
            return self.run(self.planner.install())

    def uninstall(self) -> planning.Plan:
        with self.store.locked():
            return self.run(self.planner.uninstall())

    def seen(self) -> dict[str, tuple[str, int]]:
        files = (path for path in self.root.rglob("*") if path.is_file() and "state" not in path.parts)
        return {str(path): (path.read_text(), path.stat().st_mode) for path in files}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An existing Slurm with hooks and Lua of its own."""
    if os.geteuid() != 0:
        pytest.skip("files get owners: needs root")
    return Place(tmp_path)


def test_what_was_installed_is_taken_back_byte_for_byte(place: Place) -> None:
    """Modes included; the plan in between names every file."""
    before = place.seen()
    plan = place.install()
    words = {Path(name).name: word for word, _, name in plan.lines()}
    assert (words["slurm.conf"], words["penstock.conf"], words["slurmctld"]) == ("change", "add", "restart")
    assert words["penstock-slurmd@.service"] == words["gpu1"] == "add"
    assert place.conf.read_text().count("#penstock# ") == 2
    assert (place.etc / "job_submit.site.lua").read_text() == LUA
    place.uninstall()
    assert place.seen() == before
    assert place.restarts == 2


def test_doing_it_twice_is_doing_it_once(place: Place) -> None:
    """The second plan is empty."""
    place.install()
    with place.store.locked():
        assert place.planner.install().empty


def test_what_the_administrator_edits_in_between_stays(place: Place) -> None:
    """A line in slurm.conf, and the site's own Lua."""
    place.install()
    place.conf.write_text(place.conf.read_text() + "KillWait=45\n")
    (place.etc / "job_submit.site.lua").write_text(f"-- newer\n{LUA}")
    with place.store.locked():
        assert [Path(change.path).name for change in place.planner.install().files] == ["slurm.conf"]
    place.uninstall()
    assert place.conf.read_text() == f"{CONF}KillWait=45\n"
    assert (place.etc / "job_submit.lua").read_text() == f"-- newer\n{LUA}"


def test_a_lua_that_is_put_over_ours_becomes_the_sites_own(place: Place) -> None:
    """Whoever deploys job_submit.lua again by other means does not switch the bridge off for long."""
    place.install()
    (place.etc / "job_submit.lua").write_text("-- deployed again\n")
    place.install()
    assert (place.etc / "job_submit.site.lua").read_text() == "-- deployed again\n"
    assert "job_submit.penstock.lua" in (place.etc / "job_submit.lua").read_text()


def test_what_leaves_the_site_file_leaves_the_site(place: Place) -> None:
    """The new nodes are gone from Slurm's files; what was there before them is back."""
    before = place.seen()
    place.install()
    new = '  new: {nodes: "v[1-2]", cpus: 4, memory: 8Gi, gpus: 2, slurmd: {host: head}}\n'
    assert new in place.text
    place.text = place.text.replace(new, "").replace("[known, new]", "[known]")
    plan = place.install()
    removed = {Path(name).name for word, _, name in plan.lines() if word == "remove"}
    assert {"penstock-gres.conf", "penstock-slurmd.conf", "penstock-slurmd@.service", "gres.conf"} <= removed
    assert "NodeName" not in (place.etc / "penstock.conf").read_text()
    place.uninstall()
    assert place.seen() == before


def test_a_site_without_lua_of_its_own_gets_ours_alone(place: Place) -> None:
    """And nothing is left of it."""
    (place.etc / "job_submit.lua").unlink()
    place.install()
    assert not (place.etc / "job_submit.site.lua").exists()
    assert "penstock-launch" in (place.etc / "job_submit.lua").read_text()
    place.uninstall()
    assert not (place.etc / "job_submit.lua").exists()


def test_a_file_that_cannot_be_shared_is_not_replaced(place: Place) -> None:
    """The site's own cli_filter.lua stays, and the administrator is told what to leave out."""
    (place.etc / "cli_filter.lua").write_text("-- the site's own\n")
    place.text = place.text.replace("penstockd:\n", "penstockd:\n  submit_filter: true\n")
    with pytest.raises(errors.InstallError, match="the site has its own") as caught:
        place.install()
    assert "penstockd.submit_filter" in caught.value.hint
    assert (place.etc / "cli_filter.lua").read_text() == "-- the site's own\n"
