"""A lab on loopback alone, whatever the machine is called; and Slurm's commands still work from outside.

On a real Kubernetes the first test speaks of kubelets, containerd, etcd and the registry as well.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e import sockets

from penstock_lab import components, processes, spec, supervision, testing

NAME = "far-away"
SLURM = {"slurmdbd", "slurmctld", "slurmd"}
ELSEWHERE = 'mount --bind "$0" /etc/hosts && hostname "$1" && shift && exec "$@"'


def outside_address() -> str:
    """An address of this machine that is not loopback, or one that at least looks like it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "192.0.2.7"
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """What comes before a command that shall find itself on a machine whose name is not loopback."""
    hosts = tmp_path_factory.mktemp("elsewhere") / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{outside_address()} {NAME}\n")
    namespaces = ("unshare", "--uts", "--mount", "--propagation", "private")
    return (*namespaces, "sh", "-c", ELSEWHERE, str(hosts), NAME)


@pytest.fixture(scope="module")
def far_lab(elsewhere: tuple[str, ...]) -> Iterator[testing.RunningLab]:
    """A lab that was brought up on such a machine."""
    place = testing.new_place()
    try:
        testing.lab_command(place, "up", *testing.versions(), "--nodes", "2", before=elsewhere)
        yield testing.RunningLab(place=place, user=spec.load(place).user)
    finally:
        testing.lab_command(place, "down", "--force")


def test_everything_listens_on_loopback_only(lab: testing.RunningLab) -> None:
    """Other hosts cannot connect."""
    names = {name for name, _ in sockets.listening(lab.place)}
    assert names >= SLURM
    assert sockets.reachable_from_outside(lab.place) == {}


def test_plain_slurm_listens_on_loopback_only(slurm_lab: testing.RunningLab) -> None:
    """Without the bridge there are only Slurm's own daemons, one socket each."""
    heard = sockets.listening(slurm_lab.place)
    assert len(heard) == 2 + spec.load(slurm_lab.place).nodes
    assert sockets.reachable_from_outside(slurm_lab.place) == {}


def test_host_name_with_another_address(far_lab: testing.RunningLab) -> None:
    """Slurm listens on the lab's address, not on that of the host name."""
    names = {name for name, _ in sockets.listening(far_lab.place)}
    assert names >= SLURM
    assert sockets.reachable_from_outside(far_lab.place) == {}


def test_recorded_pid_is_the_daemons(far_lab: testing.RunningLab) -> None:
    """It runs as its user, without a wrapper process."""
    found = {process.pid: process for process in processes.snapshot()}
    for part in components.all_components(far_lab.place, spec.load(far_lab.place)):
        if part.on_loopback:
            record = supervision.read_record(far_lab.place, part.name)
            assert record is not None
            assert found[record.pid].name == part.name.partition("-")[0]
            status = Path(f"/proc/{record.pid}/status").read_text()
            assert (found[record.pid].uid == 0) == (part.user == "root")
            assert ("CapEff:\t0000000000000000" in status) == (part.user != "root")


def test_srun_and_salloc_work_from_such_a_machine(
    far_lab: testing.RunningLab, elsewhere: tuple[str, ...]
) -> None:
    """They are called back on loopback, where the machine's own name does not lead."""
    for command in ("srun", "salloc"):
        argv = (command, "--partition=host", "--account=research", "printenv", "SLURM_SUBMIT_HOST")
        assert far_lab.run((*elsewhere, *argv)).stdout.split() == [NAME]


def test_jobs_of_such_a_machine_know_where_they_come_from(
    far_lab: testing.RunningLab, elsewhere: tuple[str, ...]
) -> None:
    """Batch jobs and steps within them run on the node that Slurm names, submitted by the user's host."""
    script = "echo $SLURM_SUBMIT_HOST $SLURM_JOB_NODELIST $(srun printenv SLURMD_NODENAME)"
    options = ("--parsable", "--partition=host", "--account=research", "--nodelist=n2", "--output=out")
    job = far_lab.run((*elsewhere, "sbatch", *options, f"--wrap={script}")).stdout.strip()
    assert far_lab.wait_for(job, "COMPLETED", "FAILED")["BatchHost"] == "n2"
    assert (far_lab.place.nas / "out").read_text().split() == [NAME, "n2", "n2"]


def test_bridged_jobs_run_there_too(far_lab: testing.RunningLab) -> None:
    """The whole way of a job, with all hooks."""
    job = far_lab.sbatch("#!/bin/sh\nexit 7\n", "--output=/dev/null")
    far_lab.wait_for(job, "FAILED")
    assert far_lab.accounted(job) == ["FAILED", "7:0"]


def test_restarted_daemon_listens_on_loopback(
    far_lab: testing.RunningLab, elsewhere: tuple[str, ...]
) -> None:
    """Restarted by hand, with everything else left alone."""
    testing.lab_command(far_lab.place, "restart", "slurmctld", "slurmd-n1", before=elsewhere)
    assert {name for name, _ in sockets.listening(far_lab.place)} >= SLURM
    assert sockets.reachable_from_outside(far_lab.place) == {}
