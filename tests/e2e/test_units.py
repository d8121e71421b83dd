"""The systemd units of a site are started as they stand: program, user, environment, capabilities, notice."""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e import deployed, temporaryfaults

from penstock.install import facts, sitefiles
from penstock.render import units
from penstock_lab import components, testing

SEVEN = "#!/bin/sh\nexit 7\n"
READY_SECONDS = 60.0
Unit = dict[str, str]


@pytest.fixture(scope="module")
def rendered(shared_lab: testing.RunningLab) -> dict[str, Unit]:
    """What `penstock apply` would put into /etc/systemd/system for this lab, by the units' names."""
    site = temporaryfaults.site_of(
        shared_lab, penstockd={"run": "systemd", "units": str(shared_lab.place.etc)}
    )
    files = sitefiles.all_files(site, facts.gather(site))
    return {each.path.name: service_part(each.content.decode()) for each in files if each.kind == "units"}


def service_part(text: str) -> Unit:
    """The keys of [Service]; of what is there twice, the last, as systemd does, but all of Environment=."""
    lines = text.partition("[Service]\n")[2].partition("\n[Install]")[0].splitlines()
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    added_up = " ".join(value for key, _, value in pairs if key == "Environment")
    return {key: value for key, _, value in pairs} | {"Environment": added_up}


def command_of(unit: Unit, instance: str) -> list[str]:
    """What systemd would run, with the user, the capabilities and the lock on new ones that it would set."""
    rights = ["--reuid", unit["User"], "--regid", unit["User"], "--init-groups"] if "User" in unit else []
    if "CapabilityBoundingSet" in unit:
        kept = [f"+{name.lower().removeprefix('cap_')}" for name in unit["CapabilityBoundingSet"].split()]
        rights.append(f"--bounding-set={','.join(['-all', *kept])}")
    if unit.get("NoNewPrivileges") == "yes":
        rights.append("--no-new-privs")
    started = shlex.split(unit["ExecStart"].replace("%i", instance))
    return ["setpriv", *rights, *started] if rights else started


@contextlib.contextmanager
def started(unit: Unit, instance: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """The service, once it has said that it is ready; stopped as systemd stops it."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notice:
        address = Path(folder) / "notify"
        notice.bind(str(address))
        notice.settimeout(READY_SECONDS)
        Path(folder).chmod(0o755)
        address.chmod(0o666)
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "NOTIFY_SOCKET": str(address), "LANG": "C.UTF-8"}
        env |= dict(each.split("=", 1) for each in unit["Environment"].split())
        log = Path(folder) / "log"
        with (
            log.open("wb") as output,
            subprocess.Popen(
                command_of(unit, instance), env=env, cwd="/", stdout=output, stderr=subprocess.STDOUT
            ) as child,
        ):
            try:
                if unit.get("Type") == "notify":
                    assert b"READY=1" in notice.recv(4096), log.read_text()
                yield child
            finally:
                child.terminate()
                child.wait(timeout=float(unit.get("TimeoutStopSec", "60")))
        assert child.returncode in (0, -15), log.read_text()


@contextlib.contextmanager
def instead_of(lab: testing.RunningLab, name: str) -> Iterator[None]:
    """While the lab's own is away."""
    deployed.stop(lab, name)
    try:
        yield
    finally:
        lab.penstock("lab", "restart", name)


def test_penstockd_bridges_a_job_from_its_unit(lab: testing.RunningLab, rendered: dict[str, Unit]) -> None:
    """As SlurmUser, without a capability."""
    with instead_of(lab, components.PENSTOCKD), started(rendered[units.PENSTOCKD]):
        job = lab.sbatch(SEVEN, "--output=/dev/null")
        assert lab.wait_for(job, "FAILED", timeout=90)["ExitCode"] == "7:0"
        testing.until(lambda: not lab.run(("squeue", "--noheader")).stdout)


@pytest.mark.parametrize(
    ("name", "component"), [(units.INTAKE, components.INTAKE), (units.COLLECTOR, components.COLLECTOR)]
)
def test_the_others_are_ready_with_what_their_units_leave_them(
    lab: testing.RunningLab, rendered: dict[str, Unit], name: str, component: str
) -> None:
    """Root with the few capabilities that are named."""
    with instead_of(lab, component), started(rendered[name]) as child:
        assert child.poll() is None


def node_field(lab: testing.RunningLab, name: str) -> str:
    text = lab.run(("scontrol", "--oneliner", "show", "node", temporaryfaults.NODE)).stdout
    return dict(word.split("=", 1) for word in text.split() if "=" in word)[name]


def test_a_slurmd_of_a_virtual_node_registers(lab: testing.RunningLab, rendered: dict[str, Unit]) -> None:
    """One unit for any node; slurmctld hears of the new one and may use it."""
    before = node_field(lab, "SlurmdStartTime")
    with (
        instead_of(lab, f"slurmd-{temporaryfaults.NODE}"),
        started(rendered[units.SLURMD], temporaryfaults.NODE),
    ):
        testing.until(lambda: node_field(lab, "SlurmdStartTime") > before, seconds=60)
        testing.until(lambda: node_field(lab, "State") == "IDLE", seconds=60)
        assert node_field(lab, "SlurmdStartTime") > before
    testing.until(lambda: node_field(lab, "State") == "IDLE", seconds=60)
