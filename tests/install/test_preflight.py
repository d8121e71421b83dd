"""What the host or the cluster lacks is told before anything changes: all of it, each with its line."""

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
    """What is said to an `apply` that fails; files are as before."""
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


def test_a_host_that_has_everything_is_well(host: Host) -> None:
    """No false alarm."""
    assert mistakes(host, NODES) == []


def test_all_is_told_at_once_with_its_line(host: Host) -> None:
    """In a dry run as in a call that would change things; nothing is changed by either."""
    host.edit("cluster: hall", "cluster: attic")
    host.edit("commands_dir", "restart: [/bin/false], commands_dir")
    host.edit(f"{host.commands}/penstock", "/nowhere/penstock")
    host.edit("registry:", "nas: {path: /nowhere/nas}\nregistry:")
    for words in ((), ("--dry-run",)):
        said = refused(host, *words)
        assert said.startswith("4 things must be put right first\n")
        file = host.site_file
        for line in (
            f"{file}:1:1: cluster: `attic`, but {host.conf} is of cluster hall; write `cluster: hall`",
            f"{file}:{host.line('  program')}:3: penstockd.program: there is no program /nowhere",
            f"{file}:{host.line('nas:')}:7: nas.path: there is no folder /nowhere/nas on this host",
            "slurm.restart: `/bin/false` always fails; name a command that restarts slurmctld",
            "Nothing was changed. --force goes on all the same.",
        ):
            assert line in said


def test_whoever_knows_better_may_go_on(host: Host) -> None:
    """A folder that is mounted later is told, and waits for nobody."""
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
def test_programs_that_are_missing_are_named(host: Host, old: str, new: str, words: str) -> None:
    """Those that the site file names, on this host."""
    host.edit(old, new)
    assert words in "\n".join(mistakes(host))


def test_systemd_is_asked_for_nothing_where_it_does_not_run(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemctl may be installed there all the same."""
    monkeypatch.setattr(installers, "SYSTEMD", host.root / "none")
    said = "\n".join(mistakes(host))
    assert "slurm.restart: `systemctl restart slurmctld`, but systemd does not run this host" in said
    assert "penstockd.run: `systemd`, but systemd does not run this host" in said
    host.edit("commands_dir", "restart: [/bin/sh, -c, x], commands_dir")
    host.edit("  libexec", "  run: none\n  libexec")
    assert mistakes(host) == []


def test_nodes_that_kubernetes_lacks_are_named_with_their_group(host: Host) -> None:
    """But those of plain partitions need not be there."""
    said = mistakes(host, ("v1",))
    assert [line.partition(": ")[2].partition(";")[0] for line in said] == [
        "node_groups.known.nodes: Kubernetes has no node n1",
        "node_groups.new.nodes: Kubernetes has no node v2",
    ]
    host.edit("  k8s: {nodes: [known, new]}", "  k8s: {nodes: [new]}\n  plain: {nodes: [known], mode: host}")
    assert len(mistakes(host, ("v1", "v2"))) == 0


def test_nodes_with_a_domain_in_kubernetes_are_recognised(host: Host) -> None:
    """Slurm itself can call a host so: that is the way out. A name that could be two hosts is nobody's."""
    said = "\n".join(mistakes(host, ("n1.example.org", "v1", "v2")))
    assert (
        "Kubernetes has no node n1; Kubernetes calls n1 n1.example.org: write NodeName=n1.example.org" in said
    )
    assert "NodeHostname=n1 into slurm.conf, and n1.example.org here" in said
    assert "correct the names" in "\n".join(mistakes(host, ("n1.example.org", "n1.example.net", "v1", "v2")))


def test_a_nas_that_does_not_answer_holds_nobody_up(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a folder of a file server that is away."""
    host.program("test", "exec sleep 60")
    monkeypatch.setattr(preflight, "ANSWER_SECONDS", 0.2)
    host.edit("registry:", "nas: {path: /usr}\nregistry:")
    assert "nas.path: /usr does not answer within 0.2 s" in "\n".join(mistakes(host))


def test_the_state_of_another_cluster_is_seen_before_slurmctld_refuses_it(host: Host) -> None:
    """Where slurm.conf is written whole no other file says its name."""
    state = host.root / "ctld"
    state.mkdir()
    (state / "clustername").write_text("attic")
    host.edit("commands_dir", f"manage: whole, state_dir: {state}, commands_dir")
    assert f"`hall`, but {state}/clustername is of cluster attic" in "\n".join(mistakes(host, NODES))


def test_a_name_that_a_site_file_cannot_have_is_written_as_init_writes_it(host: Host) -> None:
    """ClusterName=My_Hall is `my-hall` in the site file."""
    host.conf.write_text(host.conf.read_text().replace("ClusterName=hall", "ClusterName=My_Hall"))
    assert "write `cluster: my-hall`" in "\n".join(mistakes(host))
    host.edit("cluster: hall", "cluster: my-hall")
    assert mistakes(host) == []


@pytest.mark.needs("scontrol", package="slurm-client")
def test_a_slurm_conf_that_slurm_rejects_is_told_with_the_rest(host: Host) -> None:
    """Also in a dry run; nobody can go on with it."""
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
def test_what_keeps_slurmctld_from_starting_is_seen(text: str, found: list[str]) -> None:
    """Each was seen to end slurmctld 22.05 with a fatal error, while scontrol read the same file."""
    assert list(conffile.contradictions(text, include=lambda name: "NodeName=n1\n")) == found


def test_such_a_slurm_conf_is_refused(host: Host) -> None:
    """As somebody has left it, together with what we add."""
    host.conf.write_text(f"{host.conf.read_text()}PartitionName=odd Nodes=n1,n9\n")
    said = refused(host, "--dry-run")
    assert "slurmctld would not start: partition odd has node n9, which no NodeName line defines" in said
    assert "--force" not in said


def test_a_qos_that_the_accounting_lacks_is_named(host: Host) -> None:
    """Without an answer nothing is said."""
    host.program("sacctmgr", "echo normal; echo long")
    host.edit("k8s: {nodes: [known, new]}", "k8s: {nodes: [known, new], qos: lomg}")
    host.edit(f"commands_dir: {host.commands}", f"commands_dir: {host.programs}")
    host.program("squeue", "")
    said = "\n".join(mistakes(host))
    assert "partitions.k8s.qos: Slurm's accounting has no QOS lomg; `sacctmgr add qos lomg`, or take" in said
    host.program("sacctmgr", "exit 1")
    assert mistakes(host) == []


def test_what_keeps_a_plan_from_being_made_is_told_with_the_rest(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a mistake that was told with its line is not told again without it."""
    host.edit("user: root", "user: nobody-of-that-name")
    host.edit("cluster: hall", "cluster: attic")
    said = refused(host)
    assert "there is no user nobody-of-that-name on this host" in said
    assert "is of cluster hall" in said
    checks = preflight.Checks(["site.yaml:9:3: node_groups.a.nodes: Kubernetes has no node v3; correct it"])
    with pytest.raises(errors.InstallError, match="1 thing must") as caught, checks.telling():
        raise errors.UsageError("node group a: Kubernetes has no node v3")
    assert "site.yaml:9:3" in caught.value.message
    assert "--force" not in caught.value.hint, "there is no plan to go on with"


def test_a_cluster_that_does_not_answer_is_the_plans_affair(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its nodes are unknown, not missing."""

    def away(site: object) -> None:
        raise errors.KubeUnavailable("no answer")

    monkeypatch.setattr(kubeadmin, "members", away)
    assert preflight.members(host.site) is None
