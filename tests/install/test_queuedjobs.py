"""Queued jobs when the site changes: harm is reported, and their launchers are kept."""

from __future__ import annotations

import dataclasses
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.install import places

from penstock import errors, wellknown
from penstock.install import plans, queuedjobs
from penstock.model import jobs

BRIDGE_OLD = ("  k8s: {nodes: [known, new]}", "  k8s: {nodes: [known, new]}\n  old: {nodes: [known]}")
RENAME = ("  k8s:", "  pods:")


def job(
    number: int,
    partition: str,
    *,
    nodes: Sequence[str] = (),
    prepared: bool = True,
) -> jobs.Job:
    return jobs.Job(
        identity=jobs.JobIdentity(job_id=number, restart=0, uid=1001),
        state="PENDING",
        partition=partition,
        shown_id=str(number),
        nodes=tuple(nodes),
        prepared=prepared,
    )


class Site:
    """An installed site with a queue."""

    def __init__(self, place: places.Place) -> None:
        self.place = place
        self.jobs: tuple[jobs.Job, ...] = ()
        self.answers = True
        self.asked = 0

    def ask(self) -> tuple[jobs.Job, ...]:
        self.asked += 1
        if not self.answers:
            raise errors.SlurmUnavailable("squeue: Connection refused")
        return self.jobs

    def edit(self, *changes: tuple[str, str]) -> None:
        for old, new in changes:
            assert old in self.place.text
            self.place.text = self.place.text.replace(old, new)

    def plan(self) -> plans.Plan:
        with self.place.store.locked():
            return dataclasses.replace(self.place.planner, ask=self.ask).install()

    def apply(self) -> plans.Plan:
        with self.place.store.locked():
            return self.place.run(dataclasses.replace(self.place.planner, ask=self.ask).install())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    place = places.Place(tmp_path)
    place.conf.write_text(f"{places.CONF}StateSaveLocation={tmp_path}/ctld\n")
    made = Site(place)
    made.apply()
    return made


def said(plan: plans.Plan) -> str:
    return "\n".join(map(str, plan.harms))


def test_jobs_of_a_removed_partition_are_listed(site: Site) -> None:
    """Slurm would end them."""
    site.jobs = (job(17, "k8s"), job(18, "k8s,old"), job(19, "old", prepared=False))
    site.edit(RENAME)
    assert said(site.plan()) == "2 jobs would end as NODE_FAIL, because partition k8s is removed: 17, 18"


def test_jobs_on_a_removed_node_are_listed(site: Site) -> None:
    """Running jobs, and those that requested it by name."""
    site.jobs = (job(17, "k8s", nodes=("v2",)), job(18, "k8s", nodes=("v1", "n1")))
    site.edit(("v[1-2]", "v1"))
    assert said(site.plan()) == "1 job would end as NODE_FAIL, because their nodes are removed (v2): 17"


def test_pending_jobs_of_a_newly_bridged_partition_are_listed(site: Site) -> None:
    """They did not pass job_submit.lua; a second plan does not query the queue."""
    site.jobs = (job(17, "k8s"), job(18, "old", prepared=False))
    site.edit(BRIDGE_OLD)
    assert "1 job in old could not start" in said(site.plan())
    site.apply()
    assert site.plan().harms == ()


def test_pod_jobs_of_a_formerly_bridged_partition_are_listed(site: Site) -> None:
    """Their scripts would start a launcher without admission."""
    site.edit(BRIDGE_OLD)
    site.apply()
    site.jobs = (job(17, "old"), job(18, "old", prepared=False))
    site.edit((BRIDGE_OLD[1], BRIDGE_OLD[0]))
    assert said(site.plan()).startswith("1 job in old could not start: submitted as pods")


def test_unknown_queue_is_reported_as_a_harm(site: Site) -> None:
    site.answers = False
    site.edit(RENAME)
    assert "cannot find out which queued jobs this would harm: squeue: Connection refused" in said(
        site.plan()
    )


def test_change_of_penstockds_settings_does_not_query_the_queue(site: Site) -> None:
    site.asked, site.answers = 0, False
    site.edit(("  socket:", "  log_level: debug\n  socket:"))
    plan = site.plan()
    assert not plan.empty
    assert (site.asked, plan.harms) == (0, ())


def stored(site: Site, number: int, libexec: Path) -> None:
    """Store a job's script like slurmctld."""
    folder = site.place.root / "ctld" / f"hash.{number % 10}" / f"job.{number}"
    folder.mkdir(parents=True)
    (folder / "script").write_bytes(f"#!{libexec}/{wellknown.LAUNCHER} /bin/sh\nexit 0\n\0".encode())


def test_old_launcher_stays_while_a_stored_script_starts_it(site: Site) -> None:
    """It is complete, uses the present socket, and is removed after its last job."""
    old, new = site.place.root / "libexec", site.place.root / "elsewhere"
    site.jobs = (job(17, "k8s"), job(28, "k8s"))
    stored(site, 17, old)
    stored(site, 28, new)
    site.edit((f"libexec: {old}", f"libexec: {new}"), ("/run/p.sock", "/run/q.sock"))
    plan = site.apply()
    assert plan.kept == (f"{old}/penstock-launch: started by 1 job in the queue",)
    launcher = old / wellknown.LAUNCHER
    assert launcher.read_bytes() == (new / wellknown.LAUNCHER).read_bytes()
    assert b"q.sock" in launcher.read_bytes()
    assert stat.S_IMODE(launcher.stat().st_mode) == 0o755
    assert (old / "penstock_hooks" / "launch.py").is_file()
    assert not (old / wellknown.EPILOG).exists(), "nothing stored names the rest"
    assert site.apply().empty, "it is kept, not renewed"

    site.jobs = (job(28, "k8s"),)
    site.apply()
    assert not launcher.exists()
    assert not (old / "penstock_hooks" / "launch.py").exists()


def test_old_launcher_stays_if_its_jobs_are_unknown(site: Site) -> None:
    """If scripts cannot be read, or Slurm does not answer."""
    old, new = site.place.root / "libexec", site.place.root / "elsewhere"
    site.jobs = (job(17, "k8s"),)
    site.edit((f"libexec: {old}", f"libexec: {new}"))
    assert [line.partition(":")[0] for line in site.plan().kept] == [f"{old}/penstock-launch"]
    site.answers = False
    assert "does not say which jobs need it" in site.plan().kept[0]


def test_uninstall_removes_an_old_launcher(site: Site) -> None:
    old, new = site.place.root / "libexec", site.place.root / "elsewhere"
    site.jobs = (job(17, "k8s"),)
    site.edit((f"libexec: {old}", f"libexec: {new}"))
    site.apply()
    site.place.uninstall()
    assert not (old / wellknown.LAUNCHER).exists()


def test_long_lists_of_jobs_are_shortened() -> None:
    harm = queuedjobs.Harm(reason="wait", jobs=tuple(map(str, range(1000))), remedy="")
    assert str(harm) == f"1000 jobs wait: {', '.join(map(str, range(10)))} and 990 more"
