"""Uninstall: when it is refused, its order, and what stays recorded."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.install.hosts import Host

from penstock import errors
from penstock.install import installers, inventory, transactions
from penstock.nas import atomic
from penstock.slurm import controller

SERVICES = "disable --now penstockd.service"
SEPARATOR = 'for end; do :; done; end="${end#*:}"'
"""What squeue was asked to put behind the one column, in its last argument."""
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "penstock-system"}}


@pytest.mark.parametrize(
    "program",
    ["echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", "exec sleep 30"],
    ids=["no answer", "an answer that does not come"],
)
def test_unknown_queue_refuses_uninstall(host: Host, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "PING_SECONDS", 0.3)
    host.install()
    before = host.seen()
    host.program("squeue", program)
    with pytest.raises(errors.InstallError, match="cannot list the jobs") as caught:
        host.take_back()
    assert "nothing was changed" in caught.value.hint
    assert host.seen() == before
    assert not host.called("systemctl")


def test_jobs_in_bridged_partitions_refuse_uninstall(host: Host) -> None:
    host.install()
    before = host.seen()
    host.program("squeue", f"{SEPARATOR}; echo 17$end; echo 18$end")
    with pytest.raises(errors.InstallError, match="2 jobs are in k8s: 17 18"):
        host.take_back()
    assert host.seen() == before
    assert not host.called("systemctl")


def test_partitions_removed_from_the_site_file_are_checked_for_jobs(host: Host) -> None:
    """They are bridged until the next apply."""
    host.text = host.text.replace("  k8s: {", "  older: {nodes: [known]}\n  k8s: {")
    host.install()
    host.text = host.text.replace("  older: {nodes: [known]}\n", "")
    host.program("squeue", f'{SEPARATOR}; case "$*" in *older*) echo 17$end ;; esac')
    with pytest.raises(errors.InstallError, match="1 jobs are in k8s,older: 17"):
        host.take_back()


def test_squeue_variables_hide_no_jobs(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """squeue takes environment variables for options."""
    host.install()
    monkeypatch.setenv("SQUEUE_USERS", "root")
    host.program("squeue", f'{SEPARATOR}; test -n "$SQUEUE_USERS" || echo 17$end')
    with pytest.raises(errors.InstallError, match="1 jobs are in k8s: 17"):
        host.take_back()


def test_uninstall_of_nothing_changes_nothing(host: Host) -> None:
    mine = Path(host.site.penstockd.libexec) / "penstock_hooks" / "mine.py"
    mine.parent.mkdir(parents=True)
    mine.write_text("")
    before = host.seen()
    assert host.uninstalled("--dry-run").exit_code == 0
    done = host.uninstalled()
    assert (done.exit_code, done.output) == (0, "Nothing was installed.\n")
    assert host.seen() == before
    assert not host.calls.exists()
    assert not host.store.directory.exists()


def test_exit_code_of_a_dry_run(host: Host) -> None:
    """As that of apply."""
    host.install()
    before = host.seen()
    done = host.uninstalled("--dry-run")
    assert done.exit_code == 1
    assert f"- remove  file    {host.root}/units/penstockd.service" in done.output
    assert host.seen() == before
    assert not host.calls.exists()


def test_dry_run_does_not_recover(host: Host) -> None:
    host.install()
    journal = transactions.Journal("1", files=[], objects=[], restart=True, last=False)
    host.store.journal_path.write_bytes(msgspec.json.encode(journal))
    before = host.seen()
    with pytest.raises(errors.InstallError, match="an earlier call was interrupted"):
        host.uninstalled("--dry-run")
    assert host.seen() == before
    assert not host.calls.exists()


def test_services_stop_after_slurm_is_restored_and_before_units_are_removed(host: Host) -> None:
    """systemctl knows no unit whose file is gone."""
    before = host.seen()
    host.install()
    unit = f"{host.root}/units/penstockd.service"
    host.program("systemctl", f'[ "$1" != disable ] || [ -e {unit} ] || exit 5')
    host.take_back()
    assert host.called("systemctl") == ["restart slurmctld", SERVICES]
    assert host.seen() == before
    assert not host.store.directory.exists()


def test_services_keep_running_if_uninstall_fails(host: Host) -> None:
    """Everything is as before, penstockd included."""
    host.install()
    before = host.seen()
    host.program("systemctl", f"[ ! -e {host.etc}/penstock.conf ] && exit 1; exit 0")
    with pytest.raises(errors.InstallError, match="everything is as it was before"):
        host.take_back()
    assert host.seen() == before
    assert not [call for call in host.called("systemctl") if call.startswith("disable")]


def test_service_that_does_not_stop_keeps_its_unit(host: Host) -> None:
    """All else is uninstalled, and the next call does the rest."""
    before = host.seen()
    host.install()
    host.program("systemctl", '[ "$1" != disable ]')
    with pytest.raises(errors.InstallError, match=r"disable --now .* failed"):
        host.take_back()
    left = set(host.seen()) - set(before)
    assert left == {f"{host.root}/units/{name}.service" for name in ("penstockd", "penstock-slurmd@")}
    host.program("systemctl", "")
    host.take_back()
    assert host.called("systemctl")[-1] == SERVICES
    assert host.seen() == before
    assert not host.store.directory.exists()


def test_host_without_systemd_has_no_services(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, where systemctl may exist."""
    monkeypatch.setattr(installers, "SYSTEMD", host.root / "none")
    before = host.seen()
    host.install()
    host.take_back()
    assert host.called("systemctl") == ["restart slurmctld"]
    assert host.seen() == before


def test_objects_stay_recorded_without_kubernetes(host: Host) -> None:
    """A later call with Kubernetes removes them."""
    host.install()
    path = "/api/v1/namespaces/penstock-system"
    objects = {path: inventory.ObjectRecord(NAMESPACE)}
    noted = msgspec.structs.replace(host.store.installed(), objects=objects)
    atomic.write(host.store.installed_path, msgspec.json.encode(noted))
    done = host.uninstalled()
    assert "keep    Namespace penstock-system" in done.output
    assert "except Kubernetes" in done.output
    left = host.store.installed()
    assert (left.files, left.objects) == ({}, objects)
    calls = host.calls.read_text()
    assert host.uninstalled("--dry-run").exit_code == 0
    assert "except Kubernetes" in host.uninstalled().output
    assert (host.store.installed(), host.calls.read_text()) == (left, calls)


def test_kubeconfig_is_restored_if_uninstall_fails(host: Host) -> None:
    """It is part of the plan like any other file."""
    host.install()
    made = host.etc / "made.kubeconfig"
    made.write_text("token")
    made.chmod(0o600)
    host.store.note_made(str(made))
    before = host.seen()
    host.program("systemctl", f"[ ! -e {host.etc}/penstock.conf ] && exit 1; exit 0")
    with pytest.raises(errors.InstallError):
        host.take_back()
    assert host.seen() == before
    host.program("systemctl", "")
    assert f"- remove  file    {made}" in host.uninstalled().output
    assert not made.exists()
