"""Taking back: when it is refused, in which order it happens, and what stays known of it."""

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
def test_not_knowing_of_jobs_is_not_knowing_of_none(
    host: Host, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused, and nothing was changed."""
    monkeypatch.setattr(controller, "PING_SECONDS", 0.3)
    host.install()
    before = host.seen()
    host.program("squeue", program)
    with pytest.raises(errors.InstallError, match="squeue does not say") as caught:
        host.take_back()
    assert "nothing was changed" in caught.value.hint
    assert host.seen() == before
    assert not host.called("systemctl")


def test_jobs_in_bridged_partitions_are_named(host: Host) -> None:
    """And nothing was changed."""
    host.install()
    before = host.seen()
    host.program("squeue", f"{SEPARATOR}; echo 17$end; echo 18$end")
    with pytest.raises(errors.InstallError, match="2 jobs are in k8s: 17 18"):
        host.take_back()
    assert host.seen() == before
    assert not host.called("systemctl")


def test_jobs_of_partitions_that_left_the_file_since_are_asked_for(host: Host) -> None:
    """They are still bridged: what is installed counts, not only what the file says today."""
    host.text = host.text.replace("  k8s: {", "  older: {nodes: [known]}\n  k8s: {")
    host.install()
    host.text = host.text.replace("  older: {nodes: [known]}\n", "")
    host.program("squeue", f'{SEPARATOR}; case "$*" in *older*) echo 17$end ;; esac')
    with pytest.raises(errors.InstallError, match="1 jobs are in k8s,older: 17"):
        host.take_back()


def test_an_administrators_own_filters_hide_no_jobs(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """squeue takes variables for options, and jobs of others would be left without an Epilog."""
    host.install()
    monkeypatch.setenv("SQUEUE_USERS", "root")
    host.program("squeue", f'{SEPARATOR}; test -n "$SQUEUE_USERS" || echo 17$end')
    with pytest.raises(errors.InstallError, match="1 jobs are in k8s: 17"):
        host.take_back()


def test_where_nothing_was_installed_nothing_is_touched(host: Host) -> None:
    """No service, no file, no question to Slurm, and it is said."""
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


def test_a_dry_run_says_by_its_status_whether_there_is_something_to_do(host: Host) -> None:
    """As that of apply does."""
    host.install()
    before = host.seen()
    done = host.uninstalled("--dry-run")
    assert done.exit_code == 1
    assert f"- remove  file    {host.root}/units/penstockd.service" in done.output
    assert host.seen() == before
    assert not host.calls.exists()


def test_a_dry_run_puts_nothing_right_either(host: Host) -> None:
    """What a killed call left is put right by the next one that may change something."""
    host.install()
    journal = transactions.Journal("1", files=[], objects=[], restart=True, last=False)
    host.store.journal_path.write_bytes(msgspec.json.encode(journal))
    before = host.seen()
    with pytest.raises(errors.InstallError, match="an earlier call was interrupted"):
        host.uninstalled("--dry-run")
    assert host.seen() == before
    assert not host.calls.exists()


def test_services_are_stopped_after_slurm_is_as_before_and_before_their_units_go(host: Host) -> None:
    """systemctl knows no unit whose file is gone."""
    before = host.seen()
    host.install()
    unit = f"{host.root}/units/penstockd.service"
    host.program("systemctl", f'[ "$1" != disable ] || [ -e {unit} ] || exit 5')
    host.take_back()
    assert host.called("systemctl") == ["restart slurmctld", SERVICES]
    assert host.seen() == before
    assert not host.store.directory.exists()


def test_services_run_on_when_it_could_not_be_taken_back(host: Host) -> None:
    """slurmctld does not come up with the old files: everything is as before the call, penstockd, too."""
    host.install()
    before = host.seen()
    host.program("systemctl", f"[ ! -e {host.etc}/penstock.conf ] && exit 1; exit 0")
    with pytest.raises(errors.InstallError, match="everything is as it was before"):
        host.take_back()
    assert host.seen() == before
    assert not [call for call in host.called("systemctl") if call.startswith("disable")]


def test_a_service_that_does_not_stop_keeps_its_unit_for_the_next_call(host: Host) -> None:
    """All else is taken back, and the next call does the rest."""
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


def test_a_host_without_systemd_has_no_services(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, where systemctl may be there and answers nobody."""
    monkeypatch.setattr(installers, "SYSTEMD", host.root / "none")
    before = host.seen()
    host.install()
    host.take_back()
    assert host.called("systemctl") == ["restart slurmctld"]
    assert host.seen() == before


def test_objects_that_are_left_alone_stay_known(host: Host) -> None:
    """A later call with Kubernetes takes them back; one without has nothing to do."""
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


def test_a_file_that_was_made_once_comes_back_when_taking_back_fails(host: Host) -> None:
    """penstockd's kubeconfig is part of the plan like any other file."""
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
