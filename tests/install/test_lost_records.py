"""The folder of the records is lost: what is Penstock's is known by its mark, never taken for the site's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.install.hosts import Host
from tests.install.places import CONF, LUA

from penstock import errors
from penstock.install import facts, kubeconfigs, sitefiles

SITE_OWN = "-- the site's own\n"


def seen(host: Host) -> dict[str, tuple[str, int]]:
    """All but the empty files in place of GPUs: whose they are cannot be seen, so they stay."""
    return {path: each for path, each in host.seen().items() if f"{host.root}/dev/" not in path}


def lose(host: Host) -> None:
    """What `rm -rf` of the state folder does."""
    shutil.rmtree(host.store.directory)


def test_the_sites_policy_survives_the_next_apply(host: Host) -> None:
    """Our chain file is not put in its place, and everything comes back byte for byte."""
    (host.etc / "job_submit.lua").chmod(0o640)
    before = seen(host)
    assert host.applied().exit_code == 0
    installed, record = seen(host), host.store.installed()
    lose(host)
    done = host.applied()
    assert "records" in done.output
    assert seen(host) == installed
    found = {path: each.original is None for path, each in host.store.installed().files.items()}
    was = {path: each.original is None for path, each in record.files.items() if "/dev/gpu" not in path}
    assert found == was
    assert host.applied().output == "Nothing to do.\n"
    assert host.uninstalled().exit_code == 0
    assert seen(host) == before


def test_devices_of_the_sites_own_stay(host: Host) -> None:
    """Its gres.conf may name the same empty files as ours."""
    (host.root / "dev").mkdir()
    for number in (0, 1):
        (host.root / "dev" / f"gpu{number}").touch()
    before = host.seen()
    assert host.applied().exit_code == 0
    lose(host)
    assert host.applied().exit_code == 0
    assert host.uninstalled().exit_code == 0
    assert host.seen() == before


def test_a_site_file_that_changed_meanwhile_makes_no_difference(host: Host) -> None:
    """Settings without a mark, in other words than today's, are still not the site's."""
    before = seen(host)
    assert host.applied().exit_code == 0
    lose(host)
    host.text = host.text.replace("  k8s: {", "  more: {nodes: [known]}\n  k8s: {")
    assert host.applied().exit_code == 0
    assert (host.etc / "job_submit.site.lua").read_text() == LUA
    assert '"more"' in (host.etc / "job_submit.penstock.lua").read_text()
    assert host.uninstalled().exit_code == 0
    assert seen(host) == before


def test_a_slurm_conf_without_a_last_line_feed_comes_back_so(host: Host) -> None:
    """Its own text says so; no record is needed."""
    host.conf.write_text(CONF.rstrip("\n"))
    before = seen(host)
    assert host.applied().exit_code == 0
    lose(host)
    assert host.applied().exit_code == 0
    assert host.uninstalled().exit_code == 0
    assert seen(host) == before


def test_lines_that_were_added_to_slurm_conf_stay(host: Host) -> None:
    """What is ours in it are lines, not the file."""
    assert host.applied().exit_code == 0
    lose(host)
    host.conf.write_text(host.conf.read_text() + "KillWait=45\n")
    assert host.applied().exit_code == 0
    assert host.uninstalled().exit_code == 0
    assert host.conf.read_text() == f"{CONF}KillWait=45\n"


def test_a_dry_run_says_that_the_records_are_made_again(host: Host) -> None:
    """Although no file changes; and it makes none."""
    assert host.applied().exit_code == 0
    lose(host)
    done = host.applied("--dry-run")
    assert (done.exit_code, done.output) == (1, f"  + add     records {host.store.directory}\n")
    assert not host.store.directory.exists()


def test_uninstall_without_records_says_what_to_do(host: Host) -> None:
    """ "Nothing was installed" would be wrong: slurm.conf still includes our file."""
    assert host.applied().exit_code == 0
    lose(host)
    before = seen(host)
    for words in ((), ("--dry-run",)):
        with pytest.raises(errors.InstallError, match=r"penstock\.conf, but there are no records") as caught:
            host.uninstalled(*words)
        assert "penstock apply" in caught.value.hint
    assert seen(host) == before


def test_a_policy_that_was_overwritten_by_ours_is_not_run(host: Host) -> None:
    """A chain that calls itself would refuse every job: it goes, and ours alone stays."""
    assert host.applied().exit_code == 0
    lose(host)
    aside = host.etc / "job_submit.site.lua"
    aside.write_bytes((host.etc / "job_submit.lua").read_bytes())
    assert host.applied().exit_code == 0
    assert not aside.exists()
    assert "penstock-launch" in (host.etc / "job_submit.lua").read_text()
    assert host.uninstalled().exit_code == 0
    assert not (host.etc / "job_submit.lua").exists()


def test_a_slurm_conf_that_was_restored_by_hand_is_no_reason_to_take_ours_for_the_sites(host: Host) -> None:
    """Then the mark in the Lua file alone tells whose it is."""
    assert host.applied().exit_code == 0
    lose(host)
    host.conf.write_text(CONF)
    assert host.applied().exit_code == 0
    assert (host.etc / "job_submit.site.lua").read_text() == LUA
    assert host.uninstalled().exit_code == 0
    assert (host.etc / "job_submit.lua").read_text() == LUA
    assert not (host.etc / "job_submit.site.lua").exists()


def test_our_own_files_are_no_hindrance(host: Host) -> None:
    """cli_filter.lua and PAM's file of an earlier apply are not "the site's own"."""
    before = seen(host)
    host.text = host.text.replace("penstockd:\n", "penstockd:\n  submit_filter: true\n")
    host.text = host.text.replace("user: root,", f"user: root, pam_file: {host.etc}/pam-slurm,")
    assert host.applied().exit_code == 0
    lose(host)
    host.text = host.text.replace("  k8s: {", "  more: {nodes: [known]}\n  k8s: {")
    assert host.applied().exit_code == 0
    assert host.uninstalled().exit_code == 0
    assert seen(host) == before


def test_a_file_of_the_sites_under_a_common_name_stays_the_sites(host: Host) -> None:
    """Without the mark it is not ours, whatever was lost."""
    assert host.applied().exit_code == 0
    lose(host)
    (host.etc / "cli_filter.lua").write_text(SITE_OWN)
    host.text = host.text.replace("penstockd:\n", "penstockd:\n  submit_filter: true\n")
    with pytest.raises(errors.InstallError, match="the site has its own"):
        host.applied()
    assert (host.etc / "cli_filter.lua").read_text() == SITE_OWN


def test_rendering_knows_whose_job_submit_is_whose(host: Host) -> None:
    """Before and after apply, and without any record."""
    lua = host.etc / "job_submit.lua"
    assert sitefiles.has_site_lua(host.site)
    assert host.applied().exit_code == 0
    lose(host)
    assert sitefiles.has_site_lua(host.site)
    (host.etc / "job_submit.site.lua").unlink()
    assert not sitefiles.has_site_lua(host.site)
    lua.unlink()
    assert not sitefiles.has_site_lua(host.site)


def test_a_kubeconfig_is_ours_only_as_we_write_it(host: Host) -> None:
    """One that an administrator wrote is never removed."""
    path = Path(host.etc / "penstockd.kubeconfig")
    made = kubeconfigs.render({"server": "https://api"}, "secret")
    path.write_bytes(made)
    assert kubeconfigs.is_ours(path)
    for other in (made + b"\n", made.replace(b"penstockd", b"me"), b"apiVersion: v1\n", b"{}", b"\xff"):
        path.write_bytes(other)
        assert not kubeconfigs.is_ours(path)
    assert not kubeconfigs.is_ours(host.etc / "none")


def test_every_file_under_a_common_name_has_the_mark(host: Host) -> None:
    """Or losing the records would make it the site's."""
    host.text = host.text.replace("penstockd:\n", "penstockd:\n  submit_filter: true\n")
    host.text = host.text.replace("user: root,", f"user: root, pam_file: {host.etc}/pam-slurm,")
    for has_own in (False, True):
        known = facts.gather(host.site, site_lua=has_own)
        named = {file.path: file.content for file in sitefiles.all_files(host.site, known)}
        for path in sitefiles.common_names(host.site) & named.keys():
            assert sitefiles.is_marked(named[path]), path
        assert len(sitefiles.common_names(host.site) & named.keys()) == 3


def test_a_copy_that_is_lost_is_named(host: Host) -> None:
    """The record alone cannot bring a file back; apply goes on, and uninstall says which file it is."""
    (host.etc / "penstock.conf").write_text("# somebody's\n")
    assert host.applied().exit_code == 0
    original = host.store.installed().files[f"{host.etc}/penstock.conf"].original
    assert original is not None
    (host.store.copies / original.digest).unlink()
    assert host.applied().exit_code == 0
    with pytest.raises(errors.InstallError, match=rf"{original.digest} is lost"):
        host.uninstalled()
