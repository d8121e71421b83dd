"""Preflight checks report everything that is missing, with its line in the site file."""

from __future__ import annotations

import click.testing
import pytest
from tests.install.hosts import Host

from penstock import errors
from penstock.cli import sites
from penstock.install import installers, kubeadmin, preflight
from penstock.model import resources
from penstock.site import nodegroups
from penstock.slurm import conffile

NODES = ("n1", "v1", "v2")


def refused(host: Host, *words: str) -> str:
    """The message of an `apply` that fails without changes."""
    before = host.seen()
    with pytest.raises(errors.InstallError) as caught:
        host.applied(*words)
    assert host.seen() == before
    return f"{caught.value.message}\n{caught.value.hint}"


def mistakes(host: Host, members: tuple[str, ...] | None = None) -> list[str]:
    amount = resources.Amount(millicpus=8000, memory=2**35, gpus=0)
    nodes = [nodegroups.Member(name=name, labels={}, allocatable=amount) for name in members or ()]
    found = preflight.look(host.site, nodes if members is not None else None)
    return list(preflight.shown(found, host.site_file))


def test_complete_host_has_no_mistakes(host: Host) -> None:
    assert mistakes(host, NODES) == []


def test_everything_is_reported_at_once_with_its_line(host: Host) -> None:
    """In a dry run, too."""
    host.edit("cluster: hall", "cluster: attic")
    host.edit("commands_dir", "restart: [/bin/false], commands_dir")
    host.edit(f"{host.commands}/penstock", "/nowhere/penstock")
    host.edit("registry:", "nas: {path: /nowhere/nas}\nregistry:")
    for words in ((), ("--dry-run",)):
        said = refused(host, *words)
        assert said.startswith("4 problems must be fixed first\n")
        file = host.site_file
        for line in (
            f"{file}:1:1: cluster: `attic`, but {host.conf} belongs to cluster hall; write `cluster: hall`",
            f"{file}:{host.line('  program')}:3: penstockd.program: there is no program /nowhere",
            f"{file}:{host.line('nas:')}:7: nas.path: there is no folder /nowhere/nas on this host",
            "slurm.restart: `/bin/false` always fails; name a command that restarts slurmctld",
            "Nothing was changed. --force overrides this.",
        ):
            assert line in said


def test_force_overrides_doubts(host: Host) -> None:
    """Such as a folder that will be mounted later."""
    host.edit("registry:", "nas: {path: /nowhere/nas}\nregistry:")
    for part in ("results", "intake"):
        paths = f"config: {host.root}/etc/{part}.json, state_dir: {host.root}/state/{part}"
        host.edit("registry:", f"{part}: {{{paths}}}\nregistry:")
    argv = ["--site", str(host.site_file), "--no-kubernetes", "--yes", "--force"]
    answer = click.testing.CliRunner().invoke(sites.apply, argv, catch_exceptions=False)
    assert "there is no folder /nowhere/nas" in answer.output
    assert (host.root / "libexec" / "penstock-launch").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "commands_dir",
            "restart: [no-such-program, x], commands_dir",
            "there is no program no-such-program",
        ),
        ("  libexec", "  restart: [no-such-program]\n  libexec", "name a command that restarts penstockd"),
        ("commands_dir: ", "commands_dir: /nowhere", "there is no squeue in /nowhere"),
        (
            "registry:",
            "nas: {path: /usr}\nresults: {hook: /nowhere/hook}\nregistry:",
            "no program /nowhere/hook",
        ),
    ],
)
def test_missing_programs_are_reported(host: Host, old: str, new: str, words: str) -> None:
    host.edit(old, new)
    assert words in "\n".join(mistakes(host))


def test_systemctl_without_systemd_is_reported(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemctl may be installed all the same."""
    monkeypatch.setattr(installers, "SYSTEMD", host.root / "none")
    said = "\n".join(mistakes(host))
    assert "slurm.restart: `systemctl restart slurmctld`, but this host does not run systemd" in said
    assert "penstockd.run: `systemd`, but this host does not run systemd" in said
    host.edit("commands_dir", "restart: [/bin/sh, -c, x], commands_dir")
    host.edit("  libexec", "  run: none\n  libexec")
    assert mistakes(host) == []


def test_nodes_missing_in_kubernetes_are_reported(host: Host) -> None:
    """Only those of bridged partitions."""
    said = mistakes(host, ("v1",))
    assert [line.partition(": ")[2].partition(";")[0] for line in said] == [
        "node_groups.known.nodes: Kubernetes has no node n1",
        "node_groups.new.nodes: Kubernetes has no node v2",
    ]
    host.edit("  k8s: {nodes: [known, new]}", "  k8s: {nodes: [new]}\n  plain: {nodes: [known], mode: host}")
    assert len(mistakes(host, ("v1", "v2"))) == 0


def test_nodes_with_a_domain_in_kubernetes_are_recognised(host: Host) -> None:
    """NodeHostname is the remedy. An ambiguous name matches nothing."""
    said = "\n".join(mistakes(host, ("n1.example.org", "v1", "v2")))
    assert (
        "Kubernetes has no node n1; Kubernetes calls n1 n1.example.org: write NodeName=n1.example.org" in said
    )
    assert "NodeHostname=n1 into slurm.conf, and n1.example.org here" in said
    assert "correct the names" in "\n".join(mistakes(host, ("n1.example.org", "n1.example.net", "v1", "v2")))


def test_hanging_nas_is_reported(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.program("test", "exec sleep 60")
    monkeypatch.setattr(preflight, "ANSWER_SECONDS", 0.2)
    host.edit("registry:", "nas: {path: /usr}\nregistry:")
    assert "nas.path: /usr does not answer within 0.2 s" in "\n".join(mistakes(host))


def test_state_of_another_cluster_is_reported(host: Host) -> None:
    """With `manage: whole` only slurmctld's state has the name."""
    state = host.root / "ctld"
    state.mkdir()
    (state / "clustername").write_text("attic")
    host.edit("commands_dir", f"manage: whole, state_dir: {state}, commands_dir")
    assert f"`hall`, but {state}/clustername belongs to cluster attic" in "\n".join(mistakes(host, NODES))


def test_cluster_name_is_compared_in_its_site_file_form(host: Host) -> None:
    """ClusterName=My_Hall is `my-hall` in the site file."""
    host.conf.write_text(host.conf.read_text().replace("ClusterName=hall", "ClusterName=My_Hall"))
    assert "write `cluster: my-hall`" in "\n".join(mistakes(host))
    host.edit("cluster: hall", "cluster: my-hall")
    assert mistakes(host) == []


@pytest.mark.needs("scontrol", package="slurm-client")
def test_slurm_conf_rejected_by_slurm_is_reported_with_the_rest(host: Host) -> None:
    """In a dry run, too; --force does not override it."""
    (host.programs / "scontrol").unlink()
    host.conf.write_text(f"{host.conf.read_text()}FooBar=1\n")
    host.edit("registry:", "nas: {path: /nowhere/nas}\nregistry:")
    for words in ((), ("--dry-run",), ("--force",)):
        said = refused(host, *words)
        assert "unrecognized key: FooBar" in said
        assert "there is no folder /nowhere/nas" in said
        assert "--force" not in said


TWO = (
    "NodeName=DEFAULT CPUs=4\nNodeName=n[1-2]\nPartitionName=DEFAULT State=UP\nPartitionName=p Nodes=n[1-2]\n"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TWO, []),
        (f"{TWO}NodeName=n2\n", ["node n2 is defined twice"]),
        (f"{TWO}PartitionName=p Nodes=n1\n", ["partition p is defined twice"]),
        (f"{TWO}PartitionName=q Nodes=n2,z\n", ["partition q has node z, which no NodeName line defines"]),
        (f"{TWO}NodeSet=big Nodes=n1\nPartitionName=q Nodes=big\nPartitionName=r Nodes=ALL\n", []),
        (f"{TWO}#NodeName=n2\n", []),
        (f"{TWO}include more\n", ["node n1 is defined twice"]),
        (f"{TWO}PartitionName=DEFAULT Nodes=z\nPartitionName=q\n",
         ["partition q has node z, which no NodeName line defines"]),
        (f"{TWO}NodeName=n[\nPartitionName=\n", []),
    ],
)  # fmt: skip
def test_contradictions_that_stop_slurmctld_are_found(text: str, found: list[str]) -> None:
    """Each ended slurmctld 22.05 with a fatal error, while scontrol read the same file."""
    assert list(conffile.contradictions(text, include=lambda name: "NodeName=n1\n")) == found


def test_contradictory_slurm_conf_is_refused(host: Host) -> None:
    """Together with what we add."""
    host.conf.write_text(f"{host.conf.read_text()}PartitionName=odd Nodes=n1,n9\n")
    said = refused(host, "--dry-run")
    assert "slurmctld would not start: partition odd has node n9, which no NodeName line defines" in said
    assert "--force" not in said


def test_qos_missing_in_the_accounting_is_reported(host: Host) -> None:
    """Unless the accounting does not answer."""
    host.program("sacctmgr", "echo normal; echo long")
    host.edit("k8s: {nodes: [known, new]}", "k8s: {nodes: [known, new], qos: lomg}")
    host.edit(f"commands_dir: {host.commands}", f"commands_dir: {host.programs}")
    host.program("squeue", "")
    said = "\n".join(mistakes(host))
    assert "partitions.k8s.qos: Slurm's accounting has no QOS lomg; `sacctmgr add qos lomg`, or take" in said
    host.program("sacctmgr", "exit 1")
    assert mistakes(host) == []


def test_error_while_planning_is_reported_with_the_rest(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake that has been reported with its line is not repeated."""
    host.edit("user: root", "user: nobody-of-that-name")
    host.edit("cluster: hall", "cluster: attic")
    said = refused(host)
    assert "there is no user nobody-of-that-name on this host" in said
    assert "belongs to cluster hall" in said
    checks = preflight.Checks(["site.yaml:9:3: node_groups.a.nodes: Kubernetes has no node v3; correct it"])
    with pytest.raises(errors.InstallError, match="1 problem must") as caught, checks.telling():
        raise errors.UsageError("node group a: Kubernetes has no node v3")
    assert "site.yaml:9:3" in caught.value.message
    assert "--force" not in caught.value.hint, "there is no plan to go on with"


def test_unreachable_cluster_is_reported_by_the_plan(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes are unknown, not missing."""

    def away(site: object) -> None:
        raise errors.KubeUnavailable("no answer")

    monkeypatch.setattr(kubeadmin, "members", away)
    assert preflight.members(host.site) is None
