"""Lost records: Penstock's files are recognized by their mark and not taken for the site's."""

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
    """All files except device files of GPUs, which stay because they may be the site's."""
    return {path: each for path, each in host.seen().items() if f"{host.root}/dev/" not in path}


def lose(host: Host) -> None:
    shutil.rmtree(host.store.directory)


def test_sites_job_submit_survives_the_next_apply(host: Host) -> None:
    """Our chain file is not taken for it, and uninstall restores it byte for byte."""
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


def test_sites_device_files_stay(host: Host) -> None:
    """Its gres.conf may name the same empty files."""
    (host.root / "dev").mkdir()
    for number in (0, 1):
        (host.root / "dev" / f"gpu{number}").touch()
    before = host.seen()
    assert host.applied().exit_code == 0
    lose(host)
    assert host.applied().exit_code == 0
    assert host.uninstalled().exit_code == 0
    assert host.seen() == before


def test_records_are_restored_after_a_change_of_the_site_file(host: Host) -> None:
    """Settings without a mark and with old content are still ours."""
    before = seen(host)
    assert host.applied().exit_code == 0
    lose(host)
    host.text = host.text.replace("  k8s: {", "  more: {nodes: [known]}\n  k8s: {")
    assert host.applied().exit_code == 0
    assert (host.etc / "job_submit.site.lua").read_text() == LUA
    assert '"more"' in (host.etc / "job_submit.penstock.lua").read_text()
    assert host.uninstalled().exit_code == 0
    assert seen(host) == before


def test_slurm_conf_without_a_final_newline_is_restored(host: Host) -> None:
    host.conf.write_text(CONF.rstrip("\n"))
    before = seen(host)
    assert host.applied().exit_code == 0
    lose(host)
    assert host.applied().exit_code == 0
    assert host.uninstalled().exit_code == 0
    assert seen(host) == before


def test_added_lines_in_slurm_conf_stay(host: Host) -> None:
    assert host.applied().exit_code == 0
    lose(host)
    host.conf.write_text(host.conf.read_text() + "KillWait=45\n")
    assert host.applied().exit_code == 0
    assert host.uninstalled().exit_code == 0
    assert host.conf.read_text() == f"{CONF}KillWait=45\n"


def test_dry_run_reports_that_records_will_be_written(host: Host) -> None:
    """Although no file changes."""
    assert host.applied().exit_code == 0
    lose(host)
    done = host.applied("--dry-run")
    assert (done.exit_code, done.output) == (1, f"  + add     records {host.store.directory}\n")
    assert not host.store.directory.exists()


def test_uninstall_without_records_is_refused_with_a_hint(host: Host) -> None:
    """ "Nothing was installed" would be wrong: slurm.conf still includes our file."""
    assert host.applied().exit_code == 0
    lose(host)
    before = seen(host)
    for words in ((), ("--dry-run",)):
        with pytest.raises(errors.InstallError, match=r"penstock\.conf, but there are no records") as caught:
            host.uninstalled(*words)
        assert "penstock apply" in caught.value.hint
    assert seen(host) == before


def test_overwritten_site_lua_is_not_chained(host: Host) -> None:
    """A chain that calls itself would refuse every job."""
    assert host.applied().exit_code == 0
    lose(host)
    aside = host.etc / "job_submit.site.lua"
    aside.write_bytes((host.etc / "job_submit.lua").read_bytes())
    assert host.applied().exit_code == 0
    assert not aside.exists()
    assert "penstock-launch" in (host.etc / "job_submit.lua").read_text()
    assert host.uninstalled().exit_code == 0
    assert not (host.etc / "job_submit.lua").exists()


def test_our_lua_is_recognized_after_slurm_conf_was_restored_by_hand(host: Host) -> None:
    """By its mark alone."""
    assert host.applied().exit_code == 0
    lose(host)
    host.conf.write_text(CONF)
    assert host.applied().exit_code == 0
    assert (host.etc / "job_submit.site.lua").read_text() == LUA
    assert host.uninstalled().exit_code == 0
    assert (host.etc / "job_submit.lua").read_text() == LUA
    assert not (host.etc / "job_submit.site.lua").exists()


def test_files_of_an_earlier_apply_are_replaced(host: Host) -> None:
    """cli_filter.lua and the PAM file are not taken for the site's own."""
    before = seen(host)
    host.text = host.text.replace("penstockd:\n", "penstockd:\n  submit_filter: true\n")
    host.text = host.text.replace("user: root,", f"user: root, pam_file: {host.etc}/pam-slurm,")
    assert host.applied().exit_code == 0
    lose(host)
    host.text = host.text.replace("  k8s: {", "  more: {nodes: [known]}\n  k8s: {")
    assert host.applied().exit_code == 0
    assert host.uninstalled().exit_code == 0
    assert seen(host) == before


def test_sites_file_without_the_mark_is_not_adopted(host: Host) -> None:
    assert host.applied().exit_code == 0
    lose(host)
    (host.etc / "cli_filter.lua").write_text(SITE_OWN)
    host.text = host.text.replace("penstockd:\n", "penstockd:\n  submit_filter: true\n")
    with pytest.raises(errors.InstallError, match="the site has its own"):
        host.applied()
    assert (host.etc / "cli_filter.lua").read_text() == SITE_OWN


def test_render_distinguishes_both_job_submit_luas(host: Host) -> None:
    """Before and after apply, and without records."""
    lua = host.etc / "job_submit.lua"
    assert sitefiles.has_site_lua(host.site)
    assert host.applied().exit_code == 0
    lose(host)
    assert sitefiles.has_site_lua(host.site)
    (host.etc / "job_submit.site.lua").unlink()
    assert not sitefiles.has_site_lua(host.site)
    lua.unlink()
    assert not sitefiles.has_site_lua(host.site)


def test_kubeconfig_is_ours_only_if_written_by_us(host: Host) -> None:
    """An administrator's is never removed."""
    path = Path(host.etc / "penstockd.kubeconfig")
    made = kubeconfigs.render({"server": "https://api"}, "secret")
    path.write_bytes(made)
    assert kubeconfigs.is_ours(path)
    for other in (made + b"\n", made.replace(b"penstockd", b"me"), b"apiVersion: v1\n", b"{}", b"\xff"):
        path.write_bytes(other)
        assert not kubeconfigs.is_ours(path)
    assert not kubeconfigs.is_ours(host.etc / "none")


def test_every_file_with_a_common_name_has_the_mark(host: Host) -> None:
    """Otherwise lost records would make it the site's."""
    host.text = host.text.replace("penstockd:\n", "penstockd:\n  submit_filter: true\n")
    host.text = host.text.replace("user: root,", f"user: root, pam_file: {host.etc}/pam-slurm,")
    for has_own in (False, True):
        known = facts.gather(host.site, site_lua=has_own)
        named = {file.path: file.content for file in sitefiles.all_files(host.site, known)}
        for path in sitefiles.common_names(host.site) & named.keys():
            assert sitefiles.is_marked(named[path]), path
        assert len(sitefiles.common_names(host.site) & named.keys()) == 3


def test_lost_copy_is_reported_by_uninstall(host: Host) -> None:
    """apply works without it."""
    (host.etc / "penstock.conf").write_text("# somebody's\n")
    assert host.applied().exit_code == 0
    original = host.store.installed().files[f"{host.etc}/penstock.conf"].original
    assert original is not None
    (host.store.copies / original.digest).unlink()
    assert host.applied().exit_code == 0
    with pytest.raises(
        errors.InstallError, match=rf"{original.digest}, the copy of an original file, is missing"
    ):
        host.uninstalled()
