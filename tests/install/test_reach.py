"""Which slurmds run our hooks: none on a host without our programs."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path

import pytest
from tests.install import places, test_draft

from penstock import errors
from penstock.doctor import all_checks, checks, slurmds
from penstock.doctor.live import Live
from penstock.install import draft, facts, reach, sitefiles
from penstock.model import releases
from penstock.site import clusters, loader, nodegroups, schema
from penstock.slurm import conffile

HERE = {"head", "127.0.0.1", "n1"}
VIRTUAL = """\
cluster: hall
slurm: {slurm}
registry: {{default_image: "base:1"}}
node_groups:
  new: {{nodes: "v[1-2]", cpus: 4, memory: 8Gi, slurmd: {{host: {host}, address: {host}}}}}
  old: {{nodes: "{old}", cpus: 4, memory: 8Gi}}
partitions:
  k8s: {{nodes: [new]}}
  plain: {{nodes: [old], mode: {mode}}}
"""
CONF = "Epilog=/site/epilog\nNodeName=w[1-3] NodeAddr=10.0.0.[1-3]\nPartitionName=plain Nodes=w[1-3]\n"


def site(
    *, slurm: str = "{manage: include}", host: str = "head", old: str = "w[1-3]", mode: str = "host"
) -> schema.Site:
    text = VIRTUAL.format(slurm=slurm, host=host, old=old, mode=mode)
    return loader.loads(text.encode())


def known(of: schema.Site, conf: str = CONF, release: releases.Release = (22, 5)) -> facts.Facts:
    read = conffile.parse(conf, include=lambda name: "") if of.slurm.manage == "include" else None
    existing = facts.existing_from(read, release) if read else None
    return facts.Facts(release=release, groups=nodegroups.groups(of), existing=existing, conf=read)


def rendered(of: schema.Site, conf: str = CONF, release: releases.Release = (22, 5)) -> dict[str, str]:
    files = sitefiles.all_files(of, known(of, conf, release))
    return {
        file.path.name: file.content.decode() for file in files if file.kind in ("slurm", "units", "hooks")
    }


def words(text: str) -> set[str]:
    return {line.partition("=")[0] for line in text.split("\n")} & {"Epilog", "TaskProlog", "UsePAM"}


def found(of: schema.Site, conf: str = CONF) -> list[str]:
    return list(reach.problems(of, known(of, conf), lambda name: name in HERE))


# -- hooks in slurm.conf -------------------------------------------------------------------------------------
@pytest.mark.parametrize("lock", ["", ", pam_file: /etc/pam.d/slurm"])
@pytest.mark.parametrize("manage", ["include", "whole"])
def test_only_slurmds_of_bridged_nodes_are_configured_with_hooks(manage: str, lock: str) -> None:
    """Others may be on hosts without our programs, where a missing program drains the node."""
    files = rendered(site(slurm=f"{{manage: {manage}{lock}}}"))
    everybodys = files["slurm.conf" if manage == "whole" else "penstock.conf"]
    assert words(everybodys) == set()
    assert "PrologSlurmctld=/usr/libexec/penstock/penstock-prolog\n" in everybodys
    assert words(files["penstock-slurmd.conf"]) == {"Epilog", "UsePAM" if lock else "TaskProlog"}
    assert files["penstock-slurmd.conf"].split("\n")[1] == "include /etc/slurm/slurm.conf"
    assert "-f /etc/slurm/penstock-slurmd.conf" in files["penstock-slurmd@.service"]


def test_slurm_on_one_host_needs_no_second_file() -> None:
    """As in a lab."""
    files = rendered(site(slurm="{manage: whole}", old="head"))
    assert words(files["slurm.conf"]) == {"Epilog", "TaskProlog"}
    assert "penstock-slurmd.conf" not in files
    assert "-f /etc/slurm/slurm.conf" in files["penstock-slurmd@.service"]


def test_sites_own_slurmds_get_hooks_from_slurm_conf() -> None:
    """They read no other file."""
    files = rendered(site(mode="check", old="w1"))
    assert words(files["penstock.conf"]) == {"Epilog", "TaskProlog"}
    assert words(files["penstock-slurmd.conf"]) == set()


def test_sites_epilog_runs_once() -> None:
    """Slurm 24.05 and later run both lines; earlier ones only the last, which must run the site's, too."""
    program = "/usr/libexec/penstock/penstock-epilog"
    assert f"\nEpilog={program}-chain\n" in rendered(site())["penstock-slurmd.conf"]
    assert f"\nEpilog={program}\n" in rendered(site(), release=(24, 11))["penstock-slurmd.conf"]
    everywhere = rendered(site(mode="check", old="w1"), release=(24, 11))["penstock.conf"]
    assert f"\nEpilog={program}-chain\n" in everywhere


@pytest.mark.parametrize(("release", "programs"), [((22, 5), "/b/*"), ((24, 11), "/a.sh /b/*")])
def test_several_epilogs_of_the_site(release: releases.Release, programs: str) -> None:
    """All run from 24.05 on, only the last before."""
    conf = "Epilog=/a.sh\nPrologSlurmctld=/p.sh\nEpilog=/b/*\nNodeName=w1\n"
    files = rendered(site(mode="check", old="w1"), conf, release)
    assert f"for program in {programs}; do\n" in files["penstock-epilog-chain"]
    assert "for program in /p.sh; do\n" in files["penstock-prolog-chain"]


# -- timeouts of hooks ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("said", "of_slurmds", "of_slurmctld"),
    [
        ("", "", ""),
        ("PrologEpilogTimeout=65534", "", ""),
        ("PrologEpilogTimeout=65535", "", ""),
        ("PrologEpilogTimeout=10", "300", "60"),
        ("PrologEpilogTimeout=100", "300", ""),
        ("PrologEpilogTimeout=900", "", ""),
        ("PrologEpilogTimeout=900\nEpilog=/site/epilog", "1200", ""),
        ("PrologEpilogTimeout=900\nPrologSlurmctld=/site/prolog", "", "960"),
        ("PrologEpilogTimeout=65500\nEpilog=/site/epilog", "65533", ""),
        ("PrologEpilogTimeout=65534\nEpilog=/site/epilog", "", ""),
    ],
)
def test_sites_hook_timeout_is_never_lowered(said: str, of_slurmds: str, of_slurmctld: str) -> None:
    """No limit stays none, and an Epilog of the site's that runs before ours keeps its time."""
    files = rendered(site(), f"{said}\nNodeName=w[1-3]\n")
    for name, wanted in (("penstock-slurmd.conf", of_slurmds), ("penstock.conf", of_slurmctld)):
        lines = [line for line in files[name].split("\n") if "Timeout" in line]
        assert lines == ([f"PrologEpilogTimeout={wanted}"] if wanted else [])


def test_later_releases_have_a_timeout_per_hook() -> None:
    """25.05 and later; the older setting applies to both."""
    conf = "PrologEpilogTimeout=100\nEpilog=/e\nNodeName=w1\n"
    text = rendered(site(mode="check", old="w1"), conf, (26, 5))["penstock.conf"]
    assert "\nPrologTimeout=300\nEpilogTimeout=400\n" in text


# -- slurmds that can reach penstockd ------------------------------------------------------------------------
def test_virtual_nodes_on_this_host_can_be_bridged() -> None:
    """Slurmds on other hosts are not affected."""
    assert found(site()) == []


def test_slurmds_on_other_hosts_are_refused() -> None:
    """Their hooks could not reach penstockd: jobs would be RUNNING without a pod."""
    (only,) = found(site(host="worker7"))
    assert only.startswith("node group new: the slurmds of v1, v2 run on other hosts, where hooks cannot")
    first, *_ = found(site(mode="check"))
    assert first.startswith("node group old: the slurmds of w1, w2, w3 run on other hosts")
    assert found(site(mode="check", slurm="{manage: whole}")) == [first]


def test_node_in_a_shared_slurm_conf_is_refused() -> None:
    """Its slurmd is here, but its hooks would run on all hosts."""
    conf = "NodeName=n1\nNodeName=w[1-7] NodeHostname=host[1-7]\n"
    (only,) = found(site(mode="check", old="n1"), conf)
    assert only == (
        "slurm.conf defines n1: hooks for them must be in slurm.conf,"
        " and w1, w2, w3, w4, w5 and 2 more on other hosts would run them, too"
    )
    assert found(site(mode="check", old="n1"), "NodeName=n1\nNodeName=w1 NodeAddr=127.0.0.1\n") == []


def test_apply_refuses_before_anything_changes(tmp_path: Path) -> None:
    place = places.Place(tmp_path)
    place.conf.write_text(place.conf.read_text().replace("127.0.0.1", "192.0.2.7"))
    before = place.seen()
    with pytest.raises(errors.InstallError, match="node group known: the slurmds of n1") as caught:
        place.install()
    assert "slurmd: {host: …}" in (caught.value.hint or "")
    assert place.seen() == before


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("::1", None),
        (socket.gethostname(), True),
        ("192.0.2.7", False),
    ],
)
def test_address_is_local_if_it_can_be_bound(name: str, here: bool | None) -> None:
    assert reach.is_here(name) in ((here,) if here is not None else (True, False))
    assert not reach.is_here("no-such-host.invalid")


def test_node_address_is_parsed_like_slurm() -> None:
    """NodeAddr, NodeHostname, name; lists map to lists; DEFAULT applies to later lines."""
    conf = conffile.parse(
        "NodeName=a[1-2] NodeHostname=h[1-2]\nNodeName=b NodeHostname=h NodeAddr=10.0.0.9\nNodeName=c\n"
        "NodeName=DEFAULT NodeAddr=10.0.0.1\nNodeName=d[1-2]\nNodeName=e NodeAddr=fe80::[\n",
        include=lambda name: "",
    )
    found = {name: conf.address_of(name) for name in sorted(conf.nodes)}
    assert found == {"a1": "h1", "a2": "h2", "b": "10.0.0.9", "c": "c"} | {
        "d1": "10.0.0.1",
        "d2": "10.0.0.1",
        "e": "fe80::[",
    }


# -- init ----------------------------------------------------------------------------------------------------
def test_nodes_on_both_sides_are_left_out_if_slurmds_are_remote() -> None:
    """New nodes are proposed instead."""
    members = [test_draft.member("n1"), test_draft.member("k9")]
    seen = dataclasses.replace(test_draft.seen(["n1", "w1"], members), elsewhere=frozenset({"w1"}))
    made = draft.draft(seen, draft.Wishes())
    assert loader.loads(made.text.encode()).node_groups["kubernetes"].nodes == "k9"
    assert (made.matched, made.left_out, made.only_slurm) == ((), ("n1",), ("w1",))
    assert made.only_kubernetes == ("k9",)


def test_init_reports_that_no_node_can_be_bridged() -> None:
    """`apply` would refuse such a site file."""
    seen = dataclasses.replace(
        test_draft.seen(["n1"], [test_draft.member("n1")]), elsewhere=frozenset({"n1"})
    )
    with pytest.raises(errors.InstallError, match="slurmds run on other hosts \\(n1\\)"):
        draft.draft(seen, draft.Wishes())


# -- doctor --------------------------------------------------------------------------------------------------
def diagnosed(
    of: schema.Site, check: str, *, conf: str = CONF, address: str = "127.0.0.1"
) -> list[checks.Result]:
    """The check's results if slurmctld has this address of the slurmds of bridged nodes."""
    live = Live(of)
    found = known(of, conf)
    names = [node.name for node in clusters.bridged_nodes(of, found.groups)]
    nodes = {name: dataclasses.replace(test_draft.node(name), address=address) for name in names}
    live.answers |= {"facts": (found, None), "slurm_nodes": (nodes, None), "settings": ({}, None)}
    return list(checks.run([each for each in all_checks.ALWAYS if each.name == check], live))


def test_doctor_reports_slurmds_that_cannot_reach_penstockd() -> None:
    """By the site file or by slurmctld, once for all nodes."""
    (well,) = diagnosed(site(host="localhost"), "slurmd-hosts")
    assert well.status == "ok"
    (wrong,) = diagnosed(site(host="192.0.2.7"), "slurmd-hosts", address="192.0.2.7")
    assert (wrong.status, wrong.remedy) == ("failed", reach.REMEDY)
    assert "the slurmds of v1, v2 run on other hosts" in wrong.message
    (live,) = diagnosed(site(host="localhost"), "slurmd-hosts", address="192.0.2.7")
    assert (live.status, "slurmds of v1, v2 are on other hosts" in live.message) == (
        "failed",
        True,
    )


def test_doctor_reports_slurmds_without_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of bridged nodes that were started with another file."""
    right = "/etc/slurm/penstock-slurmd.conf"
    monkeypatch.setattr(slurmds, "confs", lambda: {"v1": right, "w1": "/etc/slurm/slurm.conf"})
    assert [each.status for each in diagnosed(site(), "epilog")] == ["ok"]
    monkeypatch.setattr(slurmds, "confs", lambda: {"v1": right, "v2": ""})
    (wrong,) = diagnosed(site(), "epilog")
    assert (wrong.status, wrong.message.startswith(f"the slurmd of v2 reads slurm.conf, not {right}")) == (
        "failed",
        True,
    )


# -- command lines of slurmds --------------------------------------------------------------------------------
def test_conf_of_slurmds_is_found(tmp_path: Path) -> None:
    """By their command lines; other programs are ignored."""
    lines = {
        "1": ("/sbin/init",),
        "2": ("/usr/sbin/slurmd", "-D", "-N", "v1", "-f", "/etc/slurm/a.conf"),
        "3": ("slurmd", "-Dvv", "-f/etc/slurm/b.conf", "-Nv2"),
        "4": ("slurmd", "-D", "-N", "v3"),
        "5": ("slurmd", "-D", "--conf-server", "x"),
    }
    for pid, argv in lines.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_text("".join(f"{word}\0" for word in argv))
    (tmp_path / "6").mkdir()
    (tmp_path / "self").mkdir()
    assert slurmds.confs(tmp_path) == {"v1": "/etc/slurm/a.conf", "v2": "/etc/slurm/b.conf", "v3": ""}
