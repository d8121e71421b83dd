"""How a lab ends, alone and beside another, and what goes wrong: nothing is left, and it says why."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.e2e import labs

from penstock_lab import paths, processes, testing


class TestDown:
    def test_down_removes_everything(self, place: paths.LabPaths) -> None:
        """Running jobs, their runaway children, a mount, the user, every file: all gone."""
        lab = testing.up(place, "--no-bridge", "--nodes", "2")
        runaway = f"#!/bin/sh\nsetsid sleep {labs.LONG} &\nsleep {labs.LONG}\n"
        for node in ("n1", "n2"):
            job = lab.sbatch(runaway, "--partition=host", f"--nodelist={node}")
            lab.wait_for(job, "RUNNING")
        inside = lab.home / "mnt"
        inside.mkdir()
        lab.run(("mount", "-t", "tmpfs", "tmpfs", str(inside)))
        (inside / "file").touch()
        testing.lab_command(place, "down")
        assert not place.directory.exists()
        assert labs.left_behind(place) == []
        assert [
            process for process in processes.snapshot() if process.argv[-2:] == ("sleep", labs.LONG)
        ] == []
        assert str(place.directory) not in Path("/proc/self/mountinfo").read_text()
        assert lab.user not in {entry.pw_name for entry in pwd.getpwall()}

    def test_down_spares_unrelated_processes(self, place: paths.LabPaths) -> None:
        """An editor with the lab's environment, in the lab's NAS, on the lab's files, is not the lab's."""
        testing.up(place, "--no-bridge", "--nodes", "1")
        env = {"SLURM_CONF": str(place.slurm_conf)}
        argv = ["tail", "-f", str(place.slurm_conf), str(place.component_log("slurmctld"))]
        with subprocess.Popen(argv, env=env, cwd=place.nas, stdout=subprocess.DEVNULL) as editor:
            try:
                testing.lab_command(place, "down")
                assert editor.poll() is None
            finally:
                editor.kill()

    def test_down_twice_is_fine(self, place: paths.LabPaths) -> None:
        """Also without a lab."""
        result = testing.lab_command(place, "down")
        assert "nothing to do" in result.stdout

    def test_down_removes_an_incomplete_lab(self, place: paths.LabPaths) -> None:
        """Killed while it came up: daemons without a complete lab around them."""
        argv = [sys.executable, "-m", "penstock", "lab", "up", "--no-bridge", "--dir", str(place.directory)]
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as starting:
            deadline = time.monotonic() + 120
            while not place.component_record("mariadbd").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            starting.kill()
        testing.lab_command(place, "down")
        assert not place.directory.exists()
        assert labs.left_behind(place) == []

    def test_broken_lab_file_has_a_hint(self, place: paths.LabPaths) -> None:
        """The hint works."""
        lab = testing.up(place, "--no-bridge", "--nodes", "1")
        place.spec.write_text("{")
        result = testing.lab_command(place, "down", check=False)
        assert result.returncode == 1
        assert "down --force" in result.stderr
        testing.lab_command(place, "down", "--force")
        assert labs.left_behind(place) == []
        subprocess.run(["userdel", lab.user], check=True, timeout=60, stderr=subprocess.DEVNULL)

    def test_other_directories_are_not_touched(self) -> None:
        """Neither by down nor by up."""
        place = testing.new_place()
        place.directory.mkdir(mode=0o755)
        thesis = place.directory / "thesis.tex"
        thesis.touch()
        try:
            for command in ("up", "down"):
                result = testing.lab_command(place, command, check=False)
                assert result.returncode == 2
                assert "neither empty nor a lab" in result.stderr
            assert thesis.exists()
        finally:
            thesis.unlink()
            place.directory.rmdir()


class TestSideBySide:
    def test_two_labs_are_independent(self, slurm_lab: testing.RunningLab, place: paths.LabPaths) -> None:
        """Own ports, keys, users and queues; the end of one is nothing to the other."""
        other = testing.up(place, "--no-bridge", "--nodes", "1")
        before = labs.pids(slurm_lab.place)
        assert other.user != slurm_lab.user
        job = other.sbatch(labs.SLEEP, "--partition=host", "--output=/dev/null")
        other.wait_for(job, "RUNNING")
        assert slurm_lab.run(("squeue", "--noheader", f"--user={other.user}")).stdout == ""
        testing.lab_command(place, "down")
        assert labs.pids(slurm_lab.place) == before
        again = slurm_lab.sbatch("#!/bin/sh\ntrue\n", "--partition=host")
        slurm_lab.wait_for(again, "COMPLETED")


class TestFaults:
    def test_port_in_use_is_reported(self, place: paths.LabPaths) -> None:
        """Port, component and the process that has it, in one line; nothing is left."""
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            result = testing.lab_command(
                place, "up", "--no-bridge", "--port-base", str(port - 1), check=False
            )
        assert result.returncode == 1
        assert f"penstock: port {port} for slurmdbd is in use by" in result.stderr
        assert f"pid {os.getpid()}" in result.stderr
        assert not place.directory.exists()

    def test_too_small_disk_is_refused(self, place: paths.LabPaths) -> None:
        """Before anything is made."""
        with small_disk(place.directory, megabytes=40):
            result = testing.lab_command(place, "up", "--no-bridge", check=False)
            assert result.returncode == 1
            assert "MB free on its disk, a lab needs 200 MB" in result.stderr
            assert list(place.directory.iterdir()) == []
            assert labs.left_behind(place) == []

    @pytest.mark.parametrize("megabytes", [0.1, 16, 25, 32, 40])
    def test_disk_filling_up_during_start(self, place: paths.LabPaths, megabytes: float) -> None:
        """Whichever component runs out of space first, the message is the same."""
        with small_disk(place.directory, megabytes=megabytes):
            program = (
                "from penstock_lab import directories; directories.NEW_LAB_MEGABYTES = 0;"
                "from penstock.cli.main import main; main()"
            )
            argv = (sys.executable, "-c", program, "lab", "up", "--no-bridge", "--dir", str(place.directory))
            env = {"PATH": os.environ["PATH"]}
            result = testing.run(argv, env=env, timeout=300, check=False, cwd=Path("/"))
            assert result.returncode == 1
            assert "penstock: no space left on the lab's disk" in result.stderr
            assert "Traceback" not in result.stderr
            assert list(place.directory.iterdir()) == []
            assert labs.left_behind(place) == []

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_interrupted_start_leaves_nothing(self, place: paths.LabPaths, number: signal.Signals) -> None:
        """Ctrl-C, SIGTERM, a closed terminal."""
        argv = [sys.executable, "-m", "penstock", "lab", "up", "--no-bridge", "--dir", str(place.directory)]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as starting:
            deadline = time.monotonic() + 120
            while not place.component_record("slurmdbd").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            starting.send_signal(number)
            _, said = starting.communicate(timeout=300)
        assert starting.returncode != 0
        assert "Traceback" not in said
        assert not place.directory.exists()
        assert labs.left_behind(place) == []

    def test_concurrent_up_is_refused(self, place: paths.LabPaths) -> None:
        """Two at once would start everything twice."""
        argv = [sys.executable, "-m", "penstock", "lab", "up", "--no-bridge", "--dir", str(place.directory)]
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as first:
            deadline = time.monotonic() + 120
            while not place.component_record("munged").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            first.send_signal(signal.SIGSTOP)  # it must not be done before the second has begun
            try:
                second = testing.lab_command(place, "up", check=False)
            finally:
                first.send_signal(signal.SIGCONT)
            assert first.wait(timeout=300) == 0
        assert second.returncode == 1
        assert "another penstock is working on the lab" in second.stderr


class TestWholeLab:
    """With dev cluster, penstockd and hooks."""

    def test_up_and_down_with_jobs_leave_nothing(self, place: paths.LabPaths) -> None:
        """Down in the middle of bridged jobs, their launchers and pods included."""
        running = testing.up(place)
        jobs = [running.sbatch(labs.SLEEP, "--output=/dev/null", "--gres=gpu:1") for _ in range(3)]
        for job in jobs:
            running.wait_for(job, "RUNNING")
        testing.lab_command(place, "down")
        assert not place.directory.exists()
        assert labs.left_behind(place) == []
        assert [
            process for process in processes.snapshot() if process.argv[-2:] == ("sleep", labs.LONG)
        ] == []
        assert str(place.directory) not in Path("/proc/self/mountinfo").read_text()

    @pytest.mark.needs("kubectl", package="kubernetes-client")
    def test_kubectl_shows_the_nodes_to_everybody(self, lab: testing.RunningLab) -> None:
        """Root and the lab's user each with the kubeconfig they get."""
        argv = ("kubectl", "get", "nodes", "--output=name")
        nodes = [f"node/n{number}" for number in range(1, 5)]
        assert lab.run(argv).stdout.split() == nodes
        assert lab.run_as_user(argv).stdout.split() == nodes

    @pytest.mark.needs("kubectl", package="kubernetes-client")
    def test_only_root_may_change_the_cluster(self, lab: testing.RunningLab) -> None:
        """The user may look; creating is refused, and the administrator's kubeconfig is out of reach."""
        refused = lab.run_as_user(("kubectl", "create", "namespace", "mine"), check=False)
        assert refused.returncode != 0
        assert "forbidden" in refused.stderr.lower()
        for private in (lab.place.admin_kubeconfig, lab.place.penstockd_kubeconfig, lab.place.tokens):
            assert "Permission denied" in lab.run_as_user(("cat", str(private)), check=False).stderr
        lab.run(("kubectl", "create", "namespace", "roots"))
        lab.run(("kubectl", "delete", "namespace", "roots", "--timeout=100s"))

    def test_killed_dev_cluster_and_daemon_come_back(self, place: paths.LabPaths) -> None:
        """And nothing else is restarted."""
        testing.up(place, "--nodes", "1")
        for victim in ("devcluster", "penstockd"):
            before = labs.pids(place)
            labs.kill(place, victim)
            testing.lab_command(place, "up")
            after = labs.pids(place)
            assert {name for name in after if after[name] != before[name]} == {victim}
        assert testing.lab_command(place, "status").returncode == 0


class small_disk:  # noqa: N801 - used like a function
    """A file system of its own at `directory`, with that much room."""

    def __init__(self, directory: Path, *, megabytes: float) -> None:
        self.directory = directory
        self.megabytes = megabytes

    def __enter__(self) -> None:
        self.directory.mkdir()
        argv = [
            "mount",
            "-t",
            "tmpfs",
            "-o",
            f"size={int(self.megabytes * 1024)}k,mode=0755",
            "tmpfs",
            str(self.directory),
        ]
        subprocess.run(argv, check=True, timeout=60)

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", str(self.directory)], check=True, timeout=60)
        self.directory.rmdir()
