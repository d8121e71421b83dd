"""Rollback after a failed or killed call keeps what others have changed since."""

from __future__ import annotations

import pytest
from tests.install.hosts import Host
from tests.install.places import CONF, LUA

from penstock import errors
from penstock.install import installers

BROKEN = CONF + "ReturnToService=Broken\n"
REPAIRED = CONF + "ReturnToService=1\n"


@pytest.fixture
def host(host: Host) -> Host:
    """A host whose slurmctld does not start with a broken slurm.conf."""
    host.program("systemctl", f"! grep -q Broken {host.conf}")
    return host


class Killed(BaseException):
    """Simulates SIGKILL."""


def killed_at(host: Host, step: str) -> None:
    """Kill `penstock apply` after this step."""

    def observe(done: str) -> None:
        if done == step:
            raise Killed

    installer = installers.Installer(host.site, kubernetes=False, observe=observe)
    with pytest.raises(Killed), installer.store.locked():
        installer.install(installer.plan_install())
    assert host.store.journal_path.exists()


def test_repaired_slurm_conf_stays_repaired(host: Host) -> None:
    """Neither the next apply nor uninstall restores the broken one."""
    host.conf.write_text(BROKEN)
    with pytest.raises(errors.InstallError, match="the rollback failed as well"):
        host.applied()
    assert host.conf.read_text() == BROKEN
    host.conf.write_text(REPAIRED)
    before = host.seen()
    done = host.applied()
    assert done.exit_code == 0
    assert f"kept because changed by others: {host.conf}" in done.output
    assert "ReturnToService=1\n" in host.conf.read_text()
    assert host.uninstalled().exit_code == 0
    assert host.seen() == before


def test_repaired_slurm_conf_can_be_uninstalled_at_once(host: Host) -> None:
    host.conf.write_text(BROKEN)
    with pytest.raises(errors.InstallError, match="the rollback failed as well"):
        host.applied()
    host.conf.write_text(REPAIRED)
    before = host.seen()
    assert f"kept because changed by others: {host.conf}" in host.uninstalled().output
    assert host.seen() == before
    assert not host.store.directory.exists()


def test_edits_of_a_killed_first_apply_stay_without_our_lines(host: Host) -> None:
    """The included file is removed: slurmctld would not start with the line."""
    before = host.seen()
    killed_at(host, str(host.conf))
    host.conf.write_text(host.conf.read_text() + "KillWait=45\n")
    done = host.uninstalled()
    assert "rolled back" in done.output
    assert f"kept because changed by others: {host.conf}" in done.output
    assert host.conf.read_text() == f"{CONF}KillWait=45\n"
    host.conf.write_text(CONF)
    assert host.seen() == before


def test_edits_of_a_killed_second_apply_stay_with_our_lines(host: Host) -> None:
    """What the first had installed stays."""
    assert host.applied().exit_code == 0
    host.text = host.text.replace("  k8s: {", "  more: {nodes: [known]}\n  k8s: {")
    killed_at(host, f"{host.etc}/penstock.conf")
    host.conf.write_text(host.conf.read_text() + "KillWait=45\n")
    assert host.applied().exit_code == 0
    text = host.conf.read_text()
    assert f"include {host.etc}/penstock.conf\n" in text
    assert "KillWait=45\n" in text
    assert host.uninstalled().exit_code == 0
    assert host.conf.read_text() == f"{CONF}KillWait=45\n"


def test_changed_mode_alone_is_ignored(host: Host) -> None:
    """Our content with another mode is still ours."""
    before = host.seen()
    killed_at(host, f"{host.etc}/penstock.conf")
    (host.etc / "penstock.conf").chmod(0o600)
    assert "changed since" not in host.uninstalled().output
    assert host.seen() == before


def test_two_versions_of_the_sites_lua_are_refused(host: Host) -> None:
    """Only the administrator knows which one is right."""
    killed_at(host, str(host.conf))
    aside = host.etc / "job_submit.site.lua"
    aside.write_text(f"-- newer\n{LUA}")
    assert f"kept because changed by others: {aside}" in host.uninstalled().output
    with pytest.raises(errors.InstallError, match=r"job_submit\.site\.lua exists and differs") as caught:
        host.applied()
    assert "remove" in caught.value.hint.lower()
    assert aside.read_text() == f"-- newer\n{LUA}"
    assert (host.etc / "job_submit.lua").read_text() == LUA
    aside.unlink()
    assert host.applied().exit_code == 0
