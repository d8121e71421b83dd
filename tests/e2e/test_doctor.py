"""The doctor finds what is wrong, says the right thing, and mends what it says it mends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from tests.e2e import doctorcases, temporaryfaults

from penstock import wellknown
from penstock.doctor import all_checks, checks
from penstock.doctor.live import Live
from penstock.site import schema
from penstock_lab import labcheck, spec, testing

CHECKS = {check.name: check for check in (*all_checks.ALWAYS, *all_checks.PROBES)}
DEV_ONLY = ("node too small", "node too large", "GPUs away", "node unknown to Kubernetes")
"""A kubelet writes its node's status anew every few seconds, and does not take a node that was deleted."""
REAL = 25
"""How many things at least are really broken."""


def found(name: str, site: schema.Site) -> list[checks.Result]:
    return list(checks.run([CHECKS[name]], Live(site)))


@pytest.fixture(scope="module")
def ward(shared_lab: testing.RunningLab) -> Iterator[testing.RunningLab]:
    """The shared lab, where things are made wrong on purpose: a proof after each would find just that."""
    with labcheck.its_programs(shared_lab.env):
        yield shared_lab


def test_doctor_on_a_healthy_lab(lab: testing.RunningLab) -> None:
    """No finding, including the probe pod, as text and as JSON."""
    answer = lab.penstock("doctor", "--probe", "--format", "json", check=False)
    report = json.loads(answer.stdout)
    wrong = [each for each in report["checks"] if each["status"] not in ("ok", "skipped")]
    assert (wrong, report["status"], answer.returncode) == ([], "ok", 0)
    assert len(CHECKS) >= 25


def test_most_faults_are_real() -> None:
    """Not only simulated by a changed site file."""
    assert set(doctorcases.SITE_FILE_FAULTS) <= set(doctorcases.CASES)
    assert len(doctorcases.CASES) - len(doctorcases.SITE_FILE_FAULTS) >= REAL


@pytest.mark.parametrize("name", doctorcases.CASES)
def test_fault_is_found_and_named(ward: testing.RunningLab, name: str) -> None:
    """The right check, the right message, a remedy; and no finding once it is repaired."""
    if name in DEV_ONLY and testing.kubernetes() != spec.DEV:
        pytest.skip("a kubelet takes it back by itself")
    fault, check, words = doctorcases.CASES[name]
    with fault(ward) as site:
        results = found(check, site)
        assert any(words in each.message for each in results), results
        assert all(each.remedy or each.status == "unknown" for each in results)
        assert checks.worst(results) in ("warning", "unknown", "failed")
    well = temporaryfaults.site_of(ward)
    testing.until(lambda: checks.worst(found(check, well)) in ("ok", "skipped"))


def test_doctor_fix(ward: testing.RunningLab) -> None:
    """Hooks, rights and folders are right again after --fix, and the command says so."""
    ward.place.nas_submit.chmod(0o700)
    ward.place.penstockd_socket.chmod(0o600)
    (ward.place.libexec / "penstock-epilog").unlink()
    readme = ward.place.nas / wellknown.DROP_FOLDER / wellknown.DROP_README
    readme.unlink()
    names = ("nas-folders", "socket", "hooks-installed", "drop-readme")
    only = [word for name in names for word in ("--only", name)]
    assert ward.penstock("doctor", *only, check=False).returncode == 3
    assert ward.penstock("doctor", "--fix", *only).stdout.count("fixed") == 4
    assert ward.penstock("doctor", *only).returncode == 0
    assert "slurm-jobs" in readme.read_text() or "submit" in readme.read_text()


def test_rights_that_are_missing_are_named(ward: testing.RunningLab) -> None:
    """Verb by verb, as the API itself answers."""
    site = temporaryfaults.site_of(ward, kubernetes={"kubeconfig": str(ward.place.viewer_kubeconfig)})
    results = found("rbac", site)
    assert "create pods/binding" in results[0].message
    assert results[0].status == "failed"


def test_unknown_check_is_a_usage_error(ward: testing.RunningLab) -> None:
    """With the names of all checks."""
    answer = ward.penstock("doctor", "--only", "nonsense", check=False)
    assert answer.returncode == 2
    assert "there is no check nonsense" in answer.stderr


BROKEN_SETTINGS = {
    "JobSubmitPlugins": None,
    "PrologSlurmctld": None,
    "Epilog": None,
    "TaskProlog": None,
    "UsePAM": None,
    "KillWait": "290",
    "PrologEpilogTimeout": "100",
    "DefMemPerCPU": None,
    "AccountingStoreFlags": None,
}
FOUND_THEN = {
    "job-submit": "without JobSubmitPlugins=lua",
    "prolog": "jobs start without admission",
    "epilog": "nodes are freed while pods still run",
    "steps": "steps run on the Slurm node itself",
    "timeouts": "KillWait (290 s) is not below",
    "memory-default": "DefMemPerCPU is not set",
    "accounting": "accounting does not keep job comments",
    "cred-expire": "credentials live 120 s",
    "partitions": "slurmctld has no partition cpu",
    "drained": "Slurm has no node n4",
}


def broken(text: str) -> str:
    for name, value in BROKEN_SETTINGS.items():
        text = re.sub(rf"(?m)^{name}=.*$", f"{name}={value}" if value else "", text)
    text = re.sub(r"(?m)^(PartitionName=cpu|NodeName=n4) .*$", "", text).replace("n1,n2,n3,n4", "n1,n2,n3")
    return text.replace(",cred_expire=10", "")


@pytest.fixture(scope="module")
def wrong_slurm(ward: testing.RunningLab) -> dict[str, list[checks.Result]]:
    """What the checks say while slurmctld runs with a slurm.conf that somebody spoiled."""
    conf = ward.place.slurm_conf
    before = conf.read_text()
    conf.write_text(broken(before))
    try:
        ward.penstock("lab", "restart", "slurmctld")
        live = Live(temporaryfaults.site_of(ward))
        results = {name: list(checks.run([CHECKS[name]], live)) for name in FOUND_THEN}
        conf.write_text(before)
        again = Live(temporaryfaults.site_of(ward))
        results["restart"] = list(checks.run([CHECKS["prolog"]], again))
    finally:
        conf.write_text(before)
        ward.penstock("lab", "restart", "slurmctld")
        ward.run(("scontrol", "reconfigure"))
    testing.until(lambda: node_states(ward) == {"idle"}, seconds=180)
    return results


def node_states(lab: testing.RunningLab) -> set[str]:
    """What slurmctld says of its nodes."""
    return set(lab.run(("sinfo", "--noheader", "--Node", "--format=%T")).stdout.split())


@pytest.mark.parametrize("name", FOUND_THEN)
def test_broken_setting_is_found_in_slurmctlds_configuration(
    wrong_slurm: dict[str, list[checks.Result]], name: str
) -> None:
    """slurmctld's loaded configuration counts, not the file on disk."""
    results = wrong_slurm[name]
    assert any(FOUND_THEN[name] in each.message for each in results), results
    assert all(each.remedy for each in results)


def test_setting_pending_a_restart_is_distinguished_from_a_missing_one(
    wrong_slurm: dict[str, list[checks.Result]],
) -> None:
    """slurm.conf is right again, but PrologSlurmctld is read at start only."""
    assert wrong_slurm["restart"][0].remedy.startswith("restart slurmctld")


def test_nodes_shows_both_views(ward: testing.RunningLab) -> None:
    """They agree; and a node that only one of them would use is reported."""
    answer = ward.penstock("nodes", "--format", "json")
    seen = {node["name"]: node for node in json.loads(answer.stdout)["nodes"]}
    assert sorted(seen) == ["n1", "n2", "n3", "n4"]
    assert all(node["disagreements"] == [] for node in seen.values())
    assert seen["n1"]["slurm_total"]["cpus"] <= seen["n1"]["kubernetes_total"]["cpus"]
    with doctorcases.CASES["node cordoned"][0](ward):
        told = ward.penstock("nodes", "--format", "json", check=False)
        assert temporaryfaults.NODE in ward.penstock("nodes", check=False).stdout
    assert told.returncode == 1
    told_of = json.loads(told.stdout)["nodes"]
    odd = {node["name"]: node["disagreements"] for node in told_of if node["disagreements"]}
    assert odd == {temporaryfaults.NODE: ["out of service in Kubernetes only"]}


def test_users_need_their_own_kubeconfig(ward: testing.RunningLab) -> None:
    """Or is told to be root; what stays unknown for want of rights says so, too. On a real cluster its rights
    end with the user's namespace.
    """
    seen = ward.run_as_user(("penstock", "nodes", "--format", "json"), check=False)
    real = testing.kubernetes() == spec.REAL
    if real:
        assert seen.stderr.endswith("run it as root\n")
    else:
        assert [node["name"] for node in json.loads(seen.stdout)["nodes"]] == ["n1", "n2", "n3", "n4"]
    without = ward.run_as_user(("env", "KUBECONFIG=", "penstock", "nodes"), check=False)
    assert without.returncode != 0
    assert without.stderr.endswith("run it as root\n")
    said = ward.run_as_user(("penstock", "doctor", "--format", "json"), check=False)
    results = json.loads(said.stdout)["checks"]
    unknown = {one["name"]: one["remedy"] for one in results if one["status"] == "unknown" and not one["see"]}
    assert real or "double-booking" not in unknown
    assert unknown["kubeconfig"] == "run it as root"
    assert set(unknown.values()) == {"run it as root"}
