"""Restart and reconfigure of slurmctld, and the reason when it does not start."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.install.places import CONF, Place

from penstock import errors
from penstock.install import plans, slurmctld

DOWN = """\
echo 'Slurmctld(primary) at head is DOWN'
echo '*****************************************'
echo '** RESTORE SLURMCTLD DAEMON TO SERVICE **'
echo '*****************************************'
"""
OLD = "[2026-11-17T16:00:00.000] fatal: of last week\n"
FATAL = "[2026-11-17T17:00:00.000] fatal: Invalid partition\n"


class Host(Place):
    """A folder with programs that record their calls, and slurmctld's log."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root)
        self.log, self.calls, self.bin = root / "slurmctld.log", root / "calls", root / "bin"
        self.bin.mkdir()
        self.log.write_text(OLD)
        self.conf.write_text(f"{CONF}SlurmctldLogFile={self.log}\n")
        self.text = self.text.replace("user: root", "user: root, restart: [again, slurmctld]")
        monkeypatch.setenv("PATH", f"{self.bin}:{os.environ['PATH']}")

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.calls}\n{text}\n')
        path.chmod(0o755)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A running slurmctld that can be restarted."""
    made = Host(tmp_path, monkeypatch)
    made.program("again", "")
    made.program("scontrol", "echo 'Slurmctld(primary) at head is UP'")
    monkeypatch.setattr(slurmctld, "POLL_SECONDS", 0.01)
    return made


def test_reason_is_the_last_fatal_line_of_this_start(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not scontrol's frame of asterisks, and not an older line; there is no waiting for a dead daemon."""
    monkeypatch.setattr(slurmctld, "FATAL_SECONDS", 0.1)
    host.program("again", f"printf '{FATAL}' >> {host.log}")
    host.program("scontrol", DOWN)
    began = time.monotonic()
    with pytest.raises(errors.InstallError) as caught:
        slurmctld.Controller(host.site).restart()
    assert caught.value.message.startswith("slurmctld did not start: fatal: Invalid partition")
    assert str(host.log) in caught.value.hint
    assert time.monotonic() - began < slurmctld.UP_SECONDS / 2


def test_failed_restart_is_reported_with_the_reason_in_the_log(host: Host) -> None:
    """systemctl itself says only that it failed."""
    host.program("again", f"printf '{FATAL}' >> {host.log}; echo 'Job for slurmctld failed.' >&2; exit 1")
    with pytest.raises(errors.InstallError, match="`again slurmctld` failed: fatal: Invalid partition"):
        slurmctld.Controller(host.site).restart()
    host.program("again", f"echo '[x] error: no PMIx' >> {host.log}; echo 'Job failed.' >&2; exit 1")
    with pytest.raises(errors.InstallError, match=r"failed: Job failed. \(last error in its log: no PMIx\)"):
        slurmctld.Controller(host.site).restart()


def test_without_a_log_scontrols_message_is_the_reason(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its frame."""
    monkeypatch.setattr(slurmctld, "UP_SECONDS", 0.1)
    host.program("scontrol", DOWN)
    with pytest.raises(errors.InstallError, match=r"did not start: Slurmctld\(primary\) at head is DOWN"):
        slurmctld.Controller(host.site).restart()


def test_rollback_of_a_failed_reconfigure_restarts(host: Host) -> None:
    """slurmctld may have ended."""
    controller = slurmctld.Controller(host.site)
    host.program("scontrol", '[ "$1" = ping ] && echo " is UP" || { echo "bad partition" >&2; exit 1; }')
    with pytest.raises(errors.InstallError, match="`scontrol reconfigure` failed: bad partition"):
        controller.reconfigure()
    host.calls.unlink()
    controller.reconfigure()
    assert host.calls.read_text().startswith("again slurmctld\n")


def words(plan: plans.Plan) -> list[str]:
    return [word for word, _, name in plan.lines() if name == "slurmctld"]


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("k8s: {nodes: [known, new]}", 'k8s: {nodes: [known, new], max_time: "1:00:00"}', ["reload"]),
        ("k8s: {nodes: [known, new]}", "k8s: {nodes: [known, new]}\n  more: {nodes: [new]}", ["reload"]),
        ("  k8s:", "  renamed:", ["reload"]),
        ("v[1-2]", "v[1-3]", ["restart"]),
        ("cpus: 4", "cpus: 2", ["restart"]),
        ("gpus: 2", "gpus: 1", ["restart"]),
        ("registry:", "timeouts: {cred_expire: 20}\nregistry:", ["restart"]),
        ("/libexec", "/elsewhere", ["restart"]),
        ("  socket:", "  log_level: debug\n  socket:", []),
    ],
)
def test_change_of_partitions_only_reconfigures(host: Host, old: str, new: str, word: list[str]) -> None:
    """Nodes, GRES and settings need a restart."""
    assert words(host.install()) == ["restart"]
    assert old in host.text
    host.text = host.text.replace(old, new)
    with host.store.locked():
        assert words(host.planner.install()) == word
