"""Rendered files of a site: golden files, and what an existing Slurm keeps."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import goldens
from tests.install import sites

from penstock import errors
from penstock.daemon import settings as daemon_settings
from penstock.install import facts, sitefiles
from penstock.model.siteview import PartitionView, SiteView
from penstock.render import includes, yamltext
from penstock.site import daemonsettings, kubeobjects, reference
from penstock.slurm import conffile
from penstock.views import installation

ROOT = Path(__file__).parents[2]
WHOLE = (("manage: include", "manage: whole"),)
DEPLOYED = (
    ("penstockd:\n", "penstockd:\n  run: deployment\n"),
    ("registry:\n", "registry:\n  prepull: true\n"),
    ("  path: /nas\n", "  path: /nas\n  claim: nas\n"),
)


def rendered(*replacements: tuple[str, str], site_lua: bool = False) -> dict[str, bytes]:
    site = sites.site(*replacements)
    files = sitefiles.all_files(site, sites.known(site, site_lua=site_lua))
    return {str(file.path): file.content for file in files}


def reviewed(name: str, text: str) -> str:
    return goldens.reviewed(f"site/{name}", text)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("penstock.conf", "/etc/slurm/penstock.conf"),
        ("penstock-gres.conf", "/etc/slurm/penstock-gres.conf"),
        ("penstock-epilog-chain", "/usr/libexec/penstock/penstock-epilog-chain"),
        ("penstockd.json", "/etc/penstock/penstockd.json"),
        ("site.json", "/etc/penstock/site.json"),
        ("intake.json", "/etc/penstock/intake.json"),
        ("collector.json", "/etc/penstock/collector.json"),
        ("penstockd.service", "/etc/systemd/system/penstockd.service"),
        ("penstock-intake.service", "/etc/systemd/system/penstock-intake.service"),
        ("penstock-collector.service", "/etc/systemd/system/penstock-collector.service"),
        ("penstock-slurmd@.service", "/etc/systemd/system/penstock-slurmd@.service"),
    ],
)
def test_golden_files_with_an_existing_slurm(name: str, path: str) -> None:
    text = rendered()[path].decode()
    assert text == reviewed(name, text)


@pytest.mark.parametrize("name", ["slurm.conf", "slurmdbd.conf", "gres.conf"])
def test_golden_files_with_manage_whole(name: str) -> None:
    """Whole files, with a password from a file."""
    text = rendered(*WHOLE)[f"/etc/slurm/{name}"].decode()
    assert text == reviewed(f"whole-{name}", text)


def test_golden_kubernetes_objects() -> None:
    for name, replacements in (("kubernetes.yaml", ()), ("kubernetes-deployment.yaml", DEPLOYED)):
        site = sites.site(*replacements)
        made = kubeobjects.all_objects(site, sites.known(site).groups)
        text = yamltext.documents(made)
        assert text == reviewed(name, text)


def test_slurmdbd_conf_is_private() -> None:
    """Readable by SlurmUser only."""
    site = sites.site(*WHOLE)
    files = sitefiles.all_files(site, sites.known(site))
    secret = next(file for file in files if file.path.name == "slurmdbd.conf")
    assert (secret.mode, secret.owner) == (0o600, "slurm")
    assert b'StoragePass="from a file"' in secret.content


def test_restrictions_of_jobs_reach_penstockd_and_the_compiler() -> None:
    """Images and directives."""
    files = rendered(("  pod_security: privileged", "  forbidden_directives: [MOUNT]"))
    told = msgspec.json.decode(files["/etc/penstock/penstockd.json"], type=daemon_settings.Settings)
    view = msgspec.json.decode(files["/etc/penstock/site.json"], type=SiteView)
    assert told.pods == view.pods
    assert told.pods.forbidden_directives == ("MOUNT",)
    assert told.pods.allowed_images == ("registry.example.org/",)


def test_allowed_node_requests_reach_penstockd_and_the_compiler() -> None:
    """An empty list, too."""
    keys = "    mode: check\n    allowed_tolerations: [spot]\n    allowed_node_labels: []\n"
    files = rendered(("    mode: check\n", keys))
    told = msgspec.json.decode(files["/etc/penstock/penstockd.json"], type=daemon_settings.Settings).pods
    view = msgspec.json.decode(files["/etc/penstock/site.json"], type=SiteView)
    assert told == view.pods
    shown = told.partition("gpu")
    assert (shown.allowed_tolerations, shown.allowed_node_labels) == (("spot",), ())
    assert told.partition("cpu").mode == "trust"
    assert told.partition("cpu").allowed_tolerations is None


def test_rendered_settings_and_view_can_be_decoded() -> None:
    files = rendered()
    msgspec.json.decode(files["/etc/penstock/penstockd.json"], type=daemon_settings.Settings)
    view = msgspec.json.decode(files["/etc/penstock/site.json"], type=SiteView)
    assert {node.count for node in view.nodes} == {4, 2}


def test_nodes_and_partitions_of_slurm_conf_are_not_redefined() -> None:
    """The others are added."""
    text = rendered()["/etc/slurm/penstock.conf"].decode()
    assert "NodeName=n1" not in text
    assert "NodeName=n3 " in text
    assert "PartitionName=cpu" not in text
    assert "PartitionName=gpu Nodes=n1,n2,n3,n4" in text
    assert "JobSubmitPlugins=throttle,lua" in text


def test_state_dir_of_the_prolog() -> None:
    """From the existing slurm.conf or Slurm's default, else from the site file."""
    include, whole = sites.site(), sites.site(*WHOLE)
    for site, settings, state in (
        (include, {"statesavelocation": "/srv/ctld"}, "/srv/ctld"),
        (include, {}, "/var/spool"),
        (whole, {}, whole.slurm.state_dir),
    ):
        files = sitefiles.all_files(
            site,
            sites.known(site, existing=includes.Existing(settings={**sites.EXISTING.settings, **settings})),
        )
        (prolog,) = (file.content for file in files if file.path.name == "penstock-prolog")
        assert f"state={state!r},".encode() in prolog


def test_sites_lua_runs_first() -> None:
    """Ours gets another name, and a third file runs both."""
    plain, chained = rendered(), rendered(site_lua=True)
    assert "/etc/slurm/job_submit.penstock.lua" not in plain
    assert chained["/etc/slurm/job_submit.penstock.lua"] == plain["/etc/slurm/job_submit.lua"]
    assert b'SITE = "/etc/slurm/job_submit.site.lua"' in chained["/etc/slurm/job_submit.lua"]


@pytest.mark.parametrize(
    ("kind", "theirs", "ours", "code", "order"),
    [
        ("PrologSlurmctld", 0, 0, 0, "theirs ours"),
        ("PrologSlurmctld", 4, 0, 4, "theirs"),
        ("PrologSlurmctld", 0, 1, 1, "theirs ours"),
        ("Epilog", 0, 0, 0, "theirs ours"),
        ("Epilog", 5, 0, 5, "theirs ours failed"),
        ("Epilog", 0, 1, 1, "theirs ours"),
    ],
)
def test_chained_hooks(tmp_path: Path, kind: str, theirs: int, ours: int, code: int, order: str) -> None:
    """The site's first. A Prolog of the site may refuse; after a job both run, and ours gets the failure."""
    (tmp_path / "d").mkdir()
    for name, result in (("d/theirs", theirs), ("ours", ours)):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho {path.name} $1\nexit {result}\n")
        path.chmod(0o755)
    chain = tmp_path / "chain"
    chain.write_text(includes.render_chain(kind, own=str(tmp_path / "ours"), site=f"{tmp_path}/d/*"))
    done = subprocess.run(
        ["/bin/sh", str(chain), "x"], capture_output=True, text=True, timeout=60, check=False
    )
    words = [word for word in done.stdout.split() if word != "x"]
    assert (done.returncode, " ".join(words)) == (code, order)


def test_reference_is_up_to_date() -> None:
    """See scripts/make_reference.py."""
    folder = ROOT / "docs" / "reference"
    assert (folder / "site.md").read_text() == reference.markdown()
    assert (folder / "site.schema.json").read_text() == reference.json_schema()


CONF_LINES = st.sampled_from(
    [
        "ClusterName=hall",
        "epilog=/old",
        "  Epilog = /older  # why",
        "# Epilog=/comment",
        "",
        "NodeName=n[1-2] CPUs=4 \\",
        "   RealMemory=100",
        "PartitionName=p Nodes=n1 Default=YES",
        "PartitionName=DEFAULT State=UP",
        "#penstock kept this",
        "# a comment that ends with a \\",
        "Epilog=/site/\\",
        "  Epilog = \\ # the name is on the next line",
    ]
)


@given(st.lists(CONF_LINES, max_size=12), st.booleans())
def test_edit_of_slurm_conf_is_reversible(lines: list[str], newline: bool) -> None:
    """Byte for byte, and idempotent."""
    text = "\n".join(lines) + ("\n" if newline and lines else "")
    include = "/etc/slurm/penstock.conf"
    once = conffile.bridged(text, include=include, settings=("Epilog",))
    assert conffile.bridged(once, include=include, settings=("Epilog",)) == once
    assert conffile.plain(once, include=include) == text
    more = conffile.plain(f"{once}KillWait=5\n", include=include)
    assert more.split("\n")[-2] == "KillWait=5", "a line that was added since stays a line"
    assert not conffile.parse(once, include=lambda name: "").get("Epilog")


def test_slurm_conf_is_parsed_like_slurm() -> None:
    """Continued lines, comments, includes, any case."""
    text = "JOBSUBMITPLUGINS=lua # ours\nNodeName=n[1-2] CPUs=4 \\\n RealMemory=1\ninclude more.conf\n"
    conf = conffile.parse(
        text, include=lambda name: f"PartitionName=p Nodes=n1 Default=YES\nKillWait={name}\n"
    )
    assert conf.get("JobSubmitPlugins") == "lua"
    assert conf.nodes == {"n1", "n2"}
    assert conf.partitions == {"p"}
    assert conf.default_partition == "p"
    assert conf.get("killwait") == "more.conf"


def test_continued_lines() -> None:
    """Joined without a space, with blanks after the backslash, too, but never out of a comment."""
    text = "# old: \\\nKillWait=5\nEpilog=/a/\\  \nb.sh # c\nProlog=/x\\#y # z\nMailProg=/m\\ # c\n1\n"
    found = conffile.parse(text, include=lambda name: "")
    assert found.settings == {"killwait": "5", "epilog": "/a/b.sh", "prolog": "/x#y", "mailprog": "/m1"}


def test_continued_lines_of_a_replaced_setting_are_commented_out() -> None:
    """The rest would be a line that Slurm cannot read."""
    text = "ClusterName=x\nEpilog=/a/\\\nb.sh\nKillWait=5\n"
    once = conffile.bridged(text, include="/p.conf", settings=("Epilog",))
    assert "\nb.sh" not in once
    assert conffile.parse(once, include=lambda name: "").settings == {"clustername": "x", "killwait": "5"}
    assert conffile.plain(once, include="/p.conf") == text


def test_include_is_not_joined_to_a_continued_last_line() -> None:
    once = conffile.bridged("KillWait=5 \\\n", include="/p.conf", settings=())
    assert conffile.parse(once, include=lambda name: "Epilog=/ours").get("Epilog") == "/ours"


SLURM_CONF = """\
GresTypes=gpu,lscratch
MaxArraySize=200
NodeName=DEFAULT Feature=rack1
NodeName=n[1-4] CPUs=64 Features="ib,avx"
NodeName=old[1-9] CPUs=4
PartitionName=DEFAULT MaxTime=2-0
PartitionName=old Nodes=old[1-9]\tDefault=YES
PartitionName=gpu Nodes=n[1-4] MaxTime=INFINITE
PartitionName=cpu Nodes=ALL
"""


def test_view_has_what_slurm_conf_defines() -> None:
    """Partitions, limits, features and GRES; it is marked as incomplete."""
    site = sites.site(("    default: true\n", ""))
    conf = conffile.parse(SLURM_CONF, include=lambda name: "")
    view = daemonsettings.view(site, sites.known(site).groups, release=(22, 5), conf=conf)
    assert (view.complete, view.gres_types, view.max_array_size) == (False, ("gpu", "lscratch"), 200)
    assert view.partitions == {
        "gpu": PartitionView(max_time="INFINITE"),
        "cpu": PartitionView(max_time="2-0", whole=False),
        "old": PartitionView(max_time="2-0", default=True, whole=False),
    }
    assert set(view.pods.partitions) == {"gpu", "cpu"}
    assert view.nodes[0].features == ("avx", "ib")


def test_view_is_complete_with_manage_whole() -> None:
    for replacements, complete in ((WHOLE, True), ((), False)):
        site = sites.site(*replacements)
        view = daemonsettings.view(site, sites.known(site).groups, release=(22, 5))
        assert view.complete is complete
        assert view.partitions["gpu"] == PartitionView(max_time="1:30:00", default=True)


def test_submit_filter_has_the_path_of_the_view() -> None:
    """By default `validate` looks only in the usual place."""
    files = rendered(("penstockd:\n", "penstockd:\n  submit_filter: true\n  config: /opt/p/penstockd.json\n"))
    assert "/opt/p/site.json" in files
    assert b'local SITE = "/opt/p/site.json"\n' in files["/etc/slurm/cli_filter.lua"]


def test_default_memory_per_cpu() -> None:
    """As `penstock explain` shows for a job that requests none."""
    site = sites.site(*WHOLE)
    view = daemonsettings.view(site, sites.known(site).groups, release=(22, 5))
    assert f"DefMemPerCPU={view.memory_per_cpu_mib}\n" in rendered(*WHOLE)["/etc/slurm/slurm.conf"].decode()
    for text, memory in (("DefMemPerCPU=1500\n", 1500), ("", 0)):
        conf = conffile.parse(f"{SLURM_CONF}{text}", include=lambda _: "")
        existing = sites.site()
        known = sites.known(existing)
        assert (
            daemonsettings.view(existing, known.groups, release=(22, 5), conf=conf).memory_per_cpu_mib
            == memory
        )


def test_site_file_is_combined_with_the_existing_slurm_conf(tmp_path: Path) -> None:
    """`penstock validate --site site.yaml` uses the same view as apply writes."""
    text = sites.GOOD.read_text().replace("/etc/slurm/slurm.conf", f"{tmp_path}/slurm.conf")
    text = text.replace(
        "selector: {pool: small}\n    size: kubernetes", "nodes: s1\n    cpus: 8\n    memory: 8Gi"
    )
    (tmp_path / "site.yaml").write_text(text)
    assert installation.load(f"{tmp_path}/site.yaml").gres_types == ("gpu",)
    (tmp_path / "slurm.conf").write_text(SLURM_CONF)
    view = installation.load(f"{tmp_path}/site.yaml")
    assert "old" in view.partitions
    assert view.gres_types == ("gpu", "lscratch")


def test_recursive_include_terminates() -> None:
    text = "include me\n"
    assert conffile.parse(text, include=lambda name: text).settings == {}


def test_missing_slurm_conf_is_reported(tmp_path: Path) -> None:
    site = sites.site(("/etc/slurm/slurm.conf", f"{tmp_path}/slurm.conf"))
    with pytest.raises(errors.UsageError, match=r"cannot read .*slurm\.conf"):
        facts.read_conf(site)


def test_quotes_are_removed_from_values() -> None:
    """A hook that used them in a path would keep every job waiting."""
    text = 'StateSaveLocation="/var/spool/slurmctld"\nEpilog=/x\n'
    found = conffile.parse(text, include=lambda name: "")
    assert (found.get("StateSaveLocation"), found.get("Epilog")) == ("/var/spool/slurmctld", "/x")
