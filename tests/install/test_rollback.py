"""Going back after a call that failed or was killed: what somebody has changed since is theirs."""

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
    """slurmctld does not start with a slurm.conf that is broken."""
    host.program("systemctl", f"! grep -q Broken {host.conf}")
    return host


class Killed(BaseException):
    """The process is gone."""


def killed_at(host: Host, step: str) -> None:
    """`penstock apply`, ended when that step is done."""

    def observe(done: str) -> None:
        if done == step:
            raise Killed

    installer = installers.Installer(host.site, kubernetes=False, observe=observe)
    with pytest.raises(Killed), installer.store.locked():
        installer.install(installer.plan_install())
    assert host.store.journal_path.exists()


def test_a_slurm_conf_that_was_repaired_stays_repaired(host: Host) -> None:
    """Neither the next apply nor uninstall puts the broken one back, and both succeed."""
    host.conf.write_text(BROKEN)
    with pytest.raises(errors.InstallError, match="going back failed as well"):
        host.applied()
    assert host.conf.read_text() == BROKEN
    host.conf.write_text(REPAIRED)
    before = host.seen()
    done = host.applied()
    assert done.exit_code == 0
    assert f"changed since and left as it is: {host.conf}" in done.output
    assert "ReturnToService=1\n" in host.conf.read_text()
    assert host.uninstalled().exit_code == 0
    assert host.seen() == before


def test_a_repaired_slurm_conf_can_be_uninstalled_at_once(host: Host) -> None:
    """Without an apply in between."""
    host.conf.write_text(BROKEN)
    with pytest.raises(errors.InstallError, match="going back failed as well"):
        host.applied()
    host.conf.write_text(REPAIRED)
    before = host.seen()
    assert f"changed since and left as it is: {host.conf}" in host.uninstalled().output
    assert host.seen() == before
    assert not host.store.directory.exists()


def test_what_was_added_to_an_edited_slurm_conf_stays_without_our_lines(host: Host) -> None:
    """The file that our line includes is gone afterwards: slurmctld would not start with it."""
    before = host.seen()
    killed_at(host, str(host.conf))
    host.conf.write_text(host.conf.read_text() + "KillWait=45\n")
    done = host.uninstalled()
    assert "taken back" in done.output
    assert f"changed since and left as it is: {host.conf}" in done.output
    assert host.conf.read_text() == f"{CONF}KillWait=45\n"
    host.conf.write_text(CONF)
    assert host.seen() == before


def test_what_was_added_during_a_second_apply_stays_with_our_lines(host: Host) -> None:
    """What the first had installed is installed again."""
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


def test_a_mode_alone_is_no_change(host: Host) -> None:
    """Our content under another mode is still ours, and goes."""
    before = host.seen()
    killed_at(host, f"{host.etc}/penstock.conf")
    (host.etc / "penstock.conf").chmod(0o600)
    assert "changed since" not in host.uninstalled().output
    assert host.seen() == before


def test_a_site_policy_that_was_edited_meanwhile_is_not_overwritten(host: Host) -> None:
    """There are two texts of the site's then; only the administrator knows which one holds."""
    killed_at(host, str(host.conf))
    aside = host.etc / "job_submit.site.lua"
    aside.write_text(f"-- newer\n{LUA}")
    assert f"changed since and left as it is: {aside}" in host.uninstalled().output
    with pytest.raises(errors.InstallError, match=r"job_submit\.site\.lua is there and is not") as caught:
        host.applied()
    assert "remove" in caught.value.hint.lower()
    assert aside.read_text() == f"-- newer\n{LUA}"
    assert (host.etc / "job_submit.lua").read_text() == LUA
    aside.unlink()
    assert host.applied().exit_code == 0
