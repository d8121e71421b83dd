"""`--dry-run` only reads, in every state of the site."""

from __future__ import annotations

import msgspec
import pytest
from tests.install.hosts import Host

from penstock import errors
from penstock.install import inventory, transactions


def everything(host: Host) -> dict[str, tuple[int, int, int, bytes]]:
    """All files and folders with their times, so that rewriting the same content counts as a change."""
    found = {}
    for path in (host.root, *host.root.rglob("*")):
        if path in (host.calls, host.site_file, host.site_file.parent):
            continue
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_ino, status.st_mode, status.st_mtime_ns, content)
    return found


def test_first_dry_run_writes_nothing(host: Host) -> None:
    """Not even the folder of the records."""
    before = everything(host)
    done = host.applied("--dry-run")
    assert done.exit_code == 1
    assert f"~ change  file    {host.conf}" in done.output
    assert everything(host) == before
    assert not host.store.directory.exists()
    assert host.changing == []


def test_dry_run_of_an_installed_site_writes_nothing(host: Host) -> None:
    host.install()
    before = everything(host)
    host.text = host.text.replace("  k8s: {", "  more: {nodes: [known]}\n  k8s: {")
    done = host.applied("--dry-run")
    assert f"~ change  file    {host.etc}/penstock.conf" in done.output
    assert host.uninstalled("--dry-run").exit_code == 1
    assert everything(host) == before
    assert host.changing == []


@pytest.mark.parametrize("command", ["applied", "uninstalled"])
def test_dry_run_only_reports_an_interrupted_call(host: Host, command: str) -> None:
    """Its files stay, and slurmctld is not restarted."""
    host.install()
    was = inventory.look(host.conf, host.store)
    change = transactions.FileChange(str(host.conf), None, was)
    journal = transactions.Journal("1", files=[change], objects=[], restart=True, last=False)
    host.store.journal_path.write_bytes(msgspec.json.encode(journal))
    before = everything(host)
    with pytest.raises(errors.InstallError, match="an earlier call was interrupted") as caught:
        getattr(host, command)("--dry-run")
    assert "without --dry-run" in caught.value.hint
    assert everything(host) == before
    assert host.changing == []


def test_dry_run_fails_while_another_call_runs(host: Host) -> None:
    """Its plan would be outdated at once."""
    with (
        host.store.locked(),
        pytest.raises(errors.InstallError, match="another `penstock apply` is running"),
    ):
        host.applied("--dry-run")


def test_declined_plan_changes_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(host)
    monkeypatch.setattr("click.confirm", _no)
    host.asked("apply")
    assert everything(host) == before
    assert host.changing == []


def _no(*_: object, **__: object) -> None:
    raise SystemExit(1)
