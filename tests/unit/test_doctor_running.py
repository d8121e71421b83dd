"""Daemons that run with old settings or not at all, and nodes of a wrong size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock import pings, presence, wellknown
from penstock.doctor import all_checks, checks, kubernetes_side
from penstock.doctor.live import Live
from penstock.install import facts
from penstock.model import cluster, nodes, resources
from penstock.slurm import conffile
from tests.install import sites
from tests.unit import fakes

CHECKS = {check.name: check for check in all_checks.ALWAYS}
CONF = "ClusterName=hall\nKillWait=30\nSelectType=select/cons_tres\nPreemptMode=GANG,REQUEUE\n"
RUNS = {
    "ClusterName": "hall",
    "KillWait": "30 sec",
    "SelectType": "select/cons_tres",
    "PreemptMode": "REQUEUE,GANG",
    "HASH_VAL": "Match",
}


def found(live: Live, name: str) -> list[checks.Result]:
    return list(checks.run([CHECKS[name]], live))


def slurm(**settings: str) -> Live:
    """A slurmctld that runs with these settings."""
    live = Live(sites.site())
    live.answers["settings"] = ({**RUNS, **settings}, None)
    live.answers["conf"] = (conffile.parse(CONF, include=str), None)
    return live


def test_slurmctld_with_its_current_file_is_ok() -> None:
    """Units and the order of lists do not matter."""
    assert [each.status for each in found(slurm(), "slurm-restarted")] == ["ok"]


def test_differing_settings_are_listed() -> None:
    """Even if the text is the same: `scontrol reconfigure` does not apply every setting."""
    (result,) = found(slurm(KillWait="60 sec", SelectType="select/linear"), "slurm-restarted")
    assert result.status == "failed"
    assert "KillWait=30, it runs with 60 sec" in result.message
    assert "SelectType=select/cons_tres, it runs with select/linear" in result.message
    assert result.remedy == "restart slurmctld: systemctl restart slurmctld"


def test_changed_slurm_conf_is_found() -> None:
    """Whatever was changed, such as a partition's line: Slurm compares the text itself."""
    (result,) = found(slurm(HASH_VAL="Different Ours=0x1 Slurmctld=0x2"), "slurm-restarted")
    assert result.status == "failed"
    assert "was changed after slurmctld had read it" in result.message
    assert "scontrol reconfigure" in result.remedy


def test_another_cluster_name_is_found() -> None:
    (result,) = found(slurm(ClusterName="other"), "cluster-name")
    assert (result.status, result.message) == (
        "failed",
        "slurmctld's ClusterName is other, the site file says hall",
    )
    assert "cluster: other" in result.remedy
    assert [each.status for each in found(slurm(ClusterName="Hall"), "cluster-name")] == ["ok"]


@pytest.mark.parametrize(
    ("slurm_cpus", "kube_cpus", "status", "words"),
    [
        (64, 64, "ok", ""),
        (60, 64, "ok", ""),
        (4, 64, "warning", "n1: cpu is 4 in Slurm, 64 allocatable in Kubernetes: the rest is idle"),
        (64, 4, "failed", "n1: cpu is 64 in Slurm, 4 allocatable in Kubernetes"),
    ],
)
def test_differing_node_sizes_are_found(slurm_cpus: int, kube_cpus: int, status: str, words: str) -> None:
    """Too large a node in Slurm blocks jobs, too small a one leaves resources idle."""
    live = Live(sites.site())
    node = nodes.Node(name="n1", state="IDLE", amount=fakes.amount(cpus=slurm_cpus, gib=1))
    live.answers["slurm_nodes"] = ({"n1": node}, None)
    live.answers["kube_nodes"] = ({"n1": fakes.node(cpus=kube_cpus, gib=1)}, None)
    live.answers["bridged_nodes"] = ({"n1": cluster.NodeSpec(name="n1", port=0)}, None)
    live.answers["facts"] = (facts.Facts(release=(22, 5), groups={}), None)
    assert [(each.status, each.message) for each in found(live, "node-sizes")] == [(status, words)]


def test_reserved_resources_and_fractions_of_a_cpu_are_not_idle() -> None:
    """The site file keeps them from Slurm, or Slurm cannot schedule them."""
    small, large = resources.Amount(millicpus=1000), resources.Amount(millicpus=4000)
    assert not list(kubernetes_side._unused(small, resources.Amount(millicpus=1900), resources.Amount()))
    whole = resources.Amount(millicpus=64000)
    assert not list(kubernetes_side._unused(large, whole, resources.Amount(millicpus=60000)))
    assert [each.what for each in kubernetes_side._unused(large, whole, resources.Amount())] == ["cpu"]


def daemons(folder: Path) -> Live:
    """A site whose daemons have their files in this folder."""
    for name in ("intake", "attempts"):
        (folder / name).mkdir()
    for name in ("penstockd", "intake", "collector"):
        (folder / f"{name}.json").write_text("{}")
    live = Live(sites.site())
    parts = {
        "penstockd": {"config": str(folder / "penstockd.json"), "socket": str(folder / "s")},
        "intake": {"config": str(folder / "intake.json"), "state_dir": str(folder / "intake")},
        "results": {"config": str(folder / "collector.json"), "state_dir": str(folder / "attempts")},
    }
    changed = {name: getattr(live.site, name).model_copy(update=part) for name, part in parts.items()}
    live.site = live.site.model_copy(update=changed)
    return live


@pytest.mark.parametrize(
    ("name", "lock", "harm"),
    [
        ("intake", f"intake/{wellknown.INTAKE_LOCK}", "files in the drop folder are not submitted"),
        ("collector", f"attempts/{wellknown.COLLECTOR_LOCK}", "results of ended jobs are not written"),
    ],
)
def test_daemon_that_is_down_or_has_old_settings_is_found(
    tmp_path: Path, name: str, lock: str, harm: str
) -> None:
    """With the command that starts or restarts it."""
    live = daemons(tmp_path)
    config = tmp_path / f"{name}.json"
    (away,) = found(live, name)
    assert (away.status, away.message) == ("failed", f"the {name} does not run: {harm}")
    assert f"systemctl start penstock-{name}" in away.remedy
    held = presence.hold(tmp_path / lock, presence.fingerprint(config))
    assert [each.status for each in found(live, name)] == ["ok"]
    config.write_text('{"new": 1}')
    (old,) = found(live, name)
    assert (old.status, old.message) == (
        "failed",
        f"the {name} runs with older settings than those in {config}",
    )
    assert old.remedy == f"restart it: systemctl restart penstock-{name}"
    os.close(held)


def test_penstockd_with_old_settings_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reports the fingerprint of the settings it has read."""
    live = daemons(tmp_path)
    config = tmp_path / "penstockd.json"
    read = presence.fingerprint(config)
    monkeypatch.setattr(pings, "fingerprint", lambda path: read)
    assert [each.status for each in found(live, "penstockd-settings")] == ["ok"]
    config.write_text('{"new": 1}')
    (old,) = found(live, "penstockd-settings")
    assert (old.status, old.message) == (
        "failed",
        f"penstockd runs with older settings than those in {config}",
    )
    assert old.remedy == "restart it: systemctl restart penstockd"


def test_penstockd_that_is_down_is_reported_once(tmp_path: Path) -> None:
    names = ("penstockd", "socket", "penstockd-settings")
    results = list(checks.run([CHECKS[name] for name in names], daemons(tmp_path)))
    assert [(each.status, each.see) for each in results] == [
        ("failed", ""),
        ("unknown", "penstockd"),
        ("unknown", "penstockd"),
    ]
