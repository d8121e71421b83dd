"""Which daemons `penstock apply` restarts, since they read their settings at start."""

from __future__ import annotations

import pytest
from tests.install.hosts import Host

from penstock import errors

NAS = """\
nas: {{path: {root}/nas}}
intake: {{config: {root}/etc/intake.json, state_dir: {root}/intake, status: {root}/run/inbox.json}}
results: {{config: {root}/etc/collector.json, state_dir: {root}/attempts}}
"""


@pytest.fixture
def host(host: Host) -> Host:
    """Installed, with NAS, intake and collector."""
    host.text += NAS.format(root=host.root)
    (host.root / "nas").mkdir(mode=0o755)
    assert host.applied().exit_code == 0
    host.calls.unlink()
    return host


@pytest.mark.parametrize(
    ("key", "value", "unit"),
    [
        ("intake: {", "settle_seconds: 5, ", "penstock-intake.service"),
        ("results: {", "max_files: 7, ", "penstock-collector.service"),
    ],
)
def test_reader_of_changed_settings_is_restarted(host: Host, key: str, value: str, unit: str) -> None:
    """Only that one, and only if it runs: try-restart starts nothing."""
    host.text = host.text.replace(key, key + value)
    assert host.applied().exit_code == 0
    assert [call for call in host.called("systemctl") if "penstock-" in call] == [f"try-restart {unit}"]


def test_unchanged_settings_restart_no_daemon(host: Host) -> None:
    assert host.applied().exit_code == 0
    assert host.called("systemctl") == []


def test_sites_restart_command_replaces_systemctl(host: Host) -> None:
    host.program("again", "")
    host.text = host.text.replace("penstockd:\n", f"penstockd:\n  restart: [{host.programs}/again]\n")
    host.text = host.text.replace("intake: {", "intake: {settle_seconds: 5, ")
    host.applied()
    assert host.called("systemctl") == []
    assert host.called("again") == [""]


def test_failed_restart_is_reported(host: Host) -> None:
    """What is installed stays."""
    host.program("systemctl", '[ "$1" != try-restart ] || { echo no such unit >&2; exit 5; }')
    host.text = host.text.replace("intake: {", "intake: {settle_seconds: 5, ")
    with pytest.raises(
        errors.InstallError, match=r"try-restart penstock-intake\.service` failed: no such unit"
    ):
        host.applied()
