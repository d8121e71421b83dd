"""A lab as a person uses it: brought up, used by root and others, broken, repaired, taken down without trace.

Not here: jobs that run as pods. Most tests share a lab with Slurm alone; those that break it make their own.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.lab import commands, paths, processes, spec, state, supervision, teardown, testing

LONG = str(10_000_000 + os.getpid())
"""Seconds of a sleep that nobody else on this machine sleeps."""
SLEEP = f"#!/bin/sh\nsleep {LONG}\n"
GUEST = "games"
"""A user that every Debian has and nobody works as."""


@pytest.fixture
def place() -> Iterator[paths.LabPaths]:
    """Room for a lab of a test's own, empty again afterwards."""
    made = testing.new_place()
    yield made
    testing.lab_command(made, "down", "--force", check=False)
    assert not made.directory.exists()


def pids(place: paths.LabPaths) -> dict[str, int | None]:
    return {part.name: part.pid for part in state.look(place).components}


def kill(place: paths.LabPaths, name: str) -> None:
    record = supervision.read_record(place, name)
    assert record is not None
    processes.send(record.identity, signal.SIGKILL)
    assert processes.wait_gone([record.identity], seconds=5) == []


def left_behind(place: paths.LabPaths) -> list[str]:
    """Every process that has to do with the lab, by its arguments or by what it holds open."""
    text = str(place.directory)
    return [
        " ".join(process.argv)
        for process in processes.snapshot()
        if process.pid != os.getpid()
        and (any(text in word for word in process.argv) or processes.holds(process.pid, place.directory))
    ]


class TestJobs:
    def test_a_job_of_the_labs_user_completes_and_is_accounted(self, slurm_lab: testing.RunningLab) -> None:
        """The thin path: sbatch by an ordinary user, its output, its record."""
        job = slurm_lab.sbatch("#!/bin/sh\nid -un\n", "--partition=host", "--output=%j.out")
        slurm_lab.wait_for(job, "COMPLETED")
        assert slurm_lab.accounted(job, "State,ExitCode,User,Account") == [
            "COMPLETED",
            "0:0",
            slurm_lab.user,
            "research",
        ]
        assert (slurm_lab.home / f"{job}.out").read_text() == f"{slurm_lab.user}\n"

    def test_an_exit_code_reaches_the_accounting(self, slurm_lab: testing.RunningLab) -> None:
        """A failure is a failure, with its number."""
        job = slurm_lab.sbatch("#!/bin/sh\nexit 7\n", "--partition=host")
        slurm_lab.wait_for(job, "FAILED")
        assert slurm_lab.accounted(job) == ["FAILED", "7:0"]

    def test_root_may_submit_too(self, slurm_lab: testing.RunningLab) -> None:
        """The one who made the lab wants to try it."""
        argv = (
            "sbatch",
            "--parsable",
            "--partition=host",
            "--output=/dev/null",
            "--account=research",
            "--wrap=true",
        )
        job = slurm_lab.run(argv).stdout.strip()
        slurm_lab.wait_for(job, "COMPLETED")

    def test_eight_cpus_are_eight_jobs(self, slurm_lab: testing.RunningLab) -> None:
        """Jobs that ask for nothing share a node by CPU; the ninth waits."""
        jobs = [
            slurm_lab.sbatch(SLEEP, "--partition=host", "--nodelist=n4", "--output=/dev/null")
            for _ in range(9)
        ]
        try:
            for job in jobs[:8]:
                slurm_lab.wait_for(job, "RUNNING")
            assert slurm_lab.job(jobs[8])["JobState"] == "PENDING"
        finally:
            slurm_lab.run(("scancel", *jobs))
        for job in jobs:
            slurm_lab.wait_for(job, "CANCELLED")

    def test_gpus_are_given_and_charged(self, slurm_lab: testing.RunningLab) -> None:
        """The GPUs do not exist, their accounting does."""
        job = slurm_lab.sbatch("#!/bin/sh\ntrue\n", "--partition=host", "--gres=gpu:2", "--output=/dev/null")
        slurm_lab.wait_for(job, "COMPLETED")
        assert "gres/gpu=2" in slurm_lab.accounted(job, "AllocTRES")[0]

    def test_an_array_over_several_nodes_completes(self, slurm_lab: testing.RunningLab) -> None:
        """Every task has a record of its own."""
        job = slurm_lab.sbatch(
            "#!/bin/sh\nexit $SLURM_ARRAY_TASK_ID\n", "--partition=host", "--array=0-3", "--output=/dev/null"
        )
        states = [slurm_lab.wait_for(f"{job}_{task}", "COMPLETED", "FAILED")["ExitCode"] for task in range(4)]
        assert states == ["0:0", "1:0", "2:0", "3:0"]

    def test_an_unknown_partition_is_one_clear_line(self, slurm_lab: testing.RunningLab) -> None:
        """sbatch says it, nothing is queued."""
        result = slurm_lab.run_as_user(("sbatch", "--partition=moon", "--wrap=true"), check=False)
        assert result.returncode == 1
        assert "invalid partition specified: moon" in result.stderr
        assert "Traceback" not in result.stderr

    def test_an_unreadable_script_is_one_clear_line(self, slurm_lab: testing.RunningLab) -> None:
        """Somebody else's script cannot be submitted."""
        script = slurm_lab.place.nas / "secret.sh"
        script.write_text("#!/bin/sh\ntrue\n")
        script.chmod(0o600)
        result = slurm_lab.run_as_user(("sbatch", "--partition=host", str(script)), check=False)
        script.unlink()
        assert result.returncode == 1
        assert result.stderr.strip() == f"sbatch: error: Unable to open file {script}"


class TestEnvironment:
    @pytest.mark.parametrize("root", [True, False])
    def test_eval_makes_everything_work(self, slurm_lab: testing.RunningLab, root: bool) -> None:
        """In a plain shell, for root and for an ordinary user alike."""
        line = (
            f'eval "$({slurm_lab.place.bin}/penstock lab env --dir {slurm_lab.place.directory})"'
            ' && sinfo --noheader --format=%R && test -d "$PENSTOCK_NAS" && test -r "$SLURM_CONF"'
            " && penstock lab status --format json"
        )
        argv = ("env", "-i", "PATH=/usr/bin:/bin", "sh", "-c", line)
        output = (slurm_lab.run(argv) if root else slurm_lab.run_as_user(argv)).stdout
        assert output.split()[:3] == ["gpu", "cpu", "host"]
        assert '"healthy": true' in output

    def test_what_is_private_stays_private(self, slurm_lab: testing.RunningLab) -> None:
        """The lab's user reads the configuration, and no key, database, state or administrator's file."""
        place = slurm_lab.place
        for private in (place.munge_key, place.slurmdbd_conf, place.database, place.controller_state):
            result = slurm_lab.run_as_user(("ls" if private.is_dir() else "cat", str(private)), check=False)
            assert "Permission denied" in result.stderr, private
        assert slurm_lab.run_as_user(("cat", str(place.slurm_conf))).stdout

    def test_daemons_listen_on_loopback_only(self, slurm_lab: testing.RunningLab) -> None:
        """Nobody outside this machine can even knock."""
        lab = spec.load(slurm_lab.place)
        ours = range(lab.port_base, lab.port_base + spec.port_count(lab.nodes))
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        heard = {row[1] for row in rows if row[3] == "0A" and int(row[1].partition(":")[2], 16) in ours}
        assert len(heard) == 2 + lab.nodes
        if not socket.gethostbyname(socket.gethostname()).startswith("127."):
            pytest.skip("this machine's name is not a loopback address: Slurm then listens on all")
        assert {address[6:8] for address in heard} == {"7F"}


class TestStatus:
    def test_all_components_are_shown_and_well(self, slurm_lab: testing.RunningLab) -> None:
        """Exit code 0, and for each a pid, memory and a time."""
        result = testing.lab_command(slurm_lab.place, "status", "--format", "json")
        shown = json.loads(result.stdout)
        assert shown["healthy"]
        assert [part["name"] for part in shown["components"]] == [
            "munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd-n1", "slurmd-n2", "slurmd-n3", "slurmd-n4",
        ]  # fmt: skip
        assert all(
            part["pid"] > 1 and part["memory_mb"] > 1 and part["since"] for part in shown["components"]
        )

    def test_the_table_shows_the_same(self, slurm_lab: testing.RunningLab) -> None:
        """For people."""
        shown = testing.lab_command(slurm_lab.place, "status", COLUMNS="200").stdout
        assert "slurmctld" in shown
        assert str(pids(slurm_lab.place)["slurmctld"]) in shown

    def test_a_drained_node_is_reported(self, slurm_lab: testing.RunningLab) -> None:
        """A person wants to know, although nothing has to be restarted."""
        update = ("scontrol", "update", "nodename=n3")
        slurm_lab.run((*update, "state=drain", "reason=test"))
        try:
            result = testing.lab_command(slurm_lab.place, "status", check=False)
            before = pids(slurm_lab.place)
            testing.lab_command(slurm_lab.place, "up")
            assert pids(slurm_lab.place) == before
        finally:
            slurm_lab.run((*update, "state=resume"))
        assert result.returncode == 1
        assert "node is drained" in result.stdout

    def test_no_lab_has_an_exit_code_of_its_own(self, place: paths.LabPaths) -> None:
        """Scripts can tell "none" from "broken"."""
        for command in ("status", "env"):
            result = testing.lab_command(place, command, check=False)
            assert result.returncode == 3
            assert "there is no lab in" in result.stderr


class TestUsers:
    def test_any_user_of_the_machine_can_be_let_in(self, slurm_lab: testing.RunningLab) -> None:
        """Refused before, accepted after, with a folder on the NAS, and twice does no harm."""
        argv = ("sbatch", "--partition=host", "--wrap=true", "--output=/dev/null")
        refused = slurm_lab.run_as_user(argv, user=GUEST, cwd=slurm_lab.place.nas, check=False)
        assert "Invalid account" in refused.stderr
        for _ in range(2):
            testing.lab_command(slurm_lab.place, "adduser", GUEST, "--account", "teaching")
        job = slurm_lab.sbatch("#!/bin/sh\npwd\n", "--partition=host", "--output=out", user=GUEST)
        slurm_lab.wait_for(job, "COMPLETED")
        assert slurm_lab.accounted(job, "User,Account") == [GUEST, "teaching"]
        assert (slurm_lab.place.nas_home(GUEST) / "out").read_text().strip().endswith(f"/home/{GUEST}")

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("no-such-user",), "there is no user no-such-user on this machine"),
            ((GUEST, "--account", "nope"), "there is no account nope in this lab"),
        ],
    )
    def test_unknown_users_and_accounts_are_one_line(
        self, slurm_lab: testing.RunningLab, arguments: tuple[str, ...], said: str
    ) -> None:
        """A wrong call, exit code 2."""
        result = testing.lab_command(slurm_lab.place, "adduser", *arguments, check=False)
        assert result.returncode == 2
        assert said in result.stderr
        assert "Traceback" not in result.stderr

    def test_without_root_and_without_sudo_it_says_so(self, slurm_lab: testing.RunningLab) -> None:
        """One line, and nothing was made."""
        place = testing.new_place()
        argv = (f"{slurm_lab.place.bin}/penstock", "lab", "up", "--dir", str(place.directory))
        result = slurm_lab.run_as_user(argv, check=False)
        assert result.returncode == 1
        assert result.stderr.startswith("penstock: the lab needs root or sudo")
        assert not place.directory.exists()

    def test_the_person_behind_sudo_is_the_labs_user(self, place: paths.LabPaths) -> None:
        """No user is made for them, and none of theirs is removed."""
        testing.lab_command(place, "up", "--no-bridge", "--nodes", "1", SUDO_USER=GUEST)
        lab = spec.load(place)
        assert (lab.user, lab.user_created) == (GUEST, False)
        running = testing.RunningLab(place=place, user=GUEST)
        job = running.sbatch("#!/bin/sh\ntrue\n", "--partition=host")
        running.wait_for(job, "COMPLETED")
        testing.lab_command(place, "down")
        assert pwd.getpwnam(GUEST).pw_name == GUEST


class TestRepair:
    def test_up_again_changes_nothing(self, slurm_lab: testing.RunningLab) -> None:
        """A healthy lab is left alone, to the last pid."""
        before = pids(slurm_lab.place)
        testing.lab_command(slurm_lab.place, "up")
        assert pids(slurm_lab.place) == before

    def test_another_size_is_refused(self, slurm_lab: testing.RunningLab) -> None:
        """A lab does not grow by itself."""
        result = testing.lab_command(slurm_lab.place, "up", "--nodes", "5", check=False)
        assert result.returncode == 2
        assert "has nodes 4, not 5" in result.stderr

    def test_killed_components_come_back_and_the_others_are_left_alone(self, place: paths.LabPaths) -> None:
        """One by one, with the history of jobs intact."""
        lab = testing.up(place, "--no-bridge", "--nodes", "2")
        job = lab.sbatch("#!/bin/sh\nexit 3\n", "--partition=host")
        lab.accounted(job)
        for victim in ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd-n2"):
            before = pids(place)
            kill(place, victim)
            assert testing.lab_command(place, "status", check=False).returncode == 1
            testing.lab_command(place, "up")
            after = pids(place)
            assert {name for name in after if after[name] != before[name]} == {victim}
        assert lab.accounted(job) == ["FAILED", "3:0"]
        again = lab.sbatch("#!/bin/sh\ntrue\n", "--partition=host")
        lab.wait_for(again, "COMPLETED")

    def test_after_a_crash_of_everything_up_brings_it_back(self, place: paths.LabPaths) -> None:
        """As after a power cut: no process, the files as they were."""
        lab = testing.up(place, "--no-bridge", "--nodes", "2")
        job = lab.sbatch("#!/bin/sh\nexit 3\n", "--partition=host")
        lab.accounted(job)
        for process in teardown.belonging(place, processes.snapshot(), created_uid=None):
            processes.send(process.identity, signal.SIGKILL)
        testing.lab_command(place, "up")
        assert testing.lab_command(place, "status").returncode == 0
        assert lab.accounted(job) == ["FAILED", "3:0"]

    def test_one_that_cannot_start_shows_its_log_and_nothing_is_removed(self, place: paths.LabPaths) -> None:
        """A munge key that somebody ruined: munged says why, the rest runs on."""
        testing.up(place, "--no-bridge", "--nodes", "1")
        kill(place, "munged")
        place.munge_key.chmod(0o600)
        place.munge_key.write_bytes(b"short")
        result = testing.lab_command(place, "up", check=False)
        assert result.returncode == 1
        assert "penstock: munged ended" in result.stderr
        assert "Keyfile must be at least 32 bytes" in result.stderr
        assert "Traceback" not in result.stderr
        assert pids(place)["mariadbd"] is not None


class TestDown:
    def test_nothing_stays(self, place: paths.LabPaths) -> None:
        """Jobs that run, their runaway children, a mount, the user, every file: all gone."""
        lab = testing.up(place, "--no-bridge", "--nodes", "2")
        runaway = f"#!/bin/sh\nsetsid sleep {LONG} &\nsleep {LONG}\n"
        for node in ("n1", "n2"):
            job = lab.sbatch(runaway, "--partition=host", f"--nodelist={node}")
            lab.wait_for(job, "RUNNING")
        inside = lab.home / "mnt"
        inside.mkdir()
        lab.run(("mount", "-t", "tmpfs", "tmpfs", str(inside)))
        (inside / "file").touch()
        testing.lab_command(place, "down")
        assert not place.directory.exists()
        assert left_behind(place) == []
        assert [process for process in processes.snapshot() if process.argv[-2:] == ("sleep", LONG)] == []
        assert str(place.directory) not in Path("/proc/self/mountinfo").read_text()
        assert lab.user not in {entry.pw_name for entry in pwd.getpwall()}

    def test_a_users_own_work_is_spared(self, place: paths.LabPaths) -> None:
        """An editor with the lab's environment, in the lab's NAS, on the lab's files, is not the lab."""
        testing.up(place, "--no-bridge", "--nodes", "1")
        env = {"SLURM_CONF": str(place.slurm_conf)}
        argv = ["tail", "-f", str(place.slurm_conf), str(place.component_log("slurmctld"))]
        with subprocess.Popen(argv, env=env, cwd=place.nas, stdout=subprocess.DEVNULL) as editor:
            try:
                testing.lab_command(place, "down")
                assert editor.poll() is None
            finally:
                editor.kill()

    def test_twice_is_fine(self, place: paths.LabPaths) -> None:
        """And so is a lab that never was."""
        result = testing.lab_command(place, "down")
        assert "nothing to do" in result.stdout

    def test_a_half_made_lab_goes_too(self, place: paths.LabPaths) -> None:
        """Killed while it came up: daemons without a complete lab around them."""
        argv = [sys.executable, "-m", "penstock", "lab", "up", "--no-bridge", "--dir", str(place.directory)]
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as starting:
            deadline = time.monotonic() + 20
            while not place.component_record("mariadbd").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            starting.kill()
        testing.lab_command(place, "down")
        assert not place.directory.exists()
        assert left_behind(place) == []

    def test_a_broken_lab_file_says_what_to_do(self, place: paths.LabPaths) -> None:
        """The hint works."""
        lab = testing.up(place, "--no-bridge", "--nodes", "1")
        place.spec.write_text("{")
        result = testing.lab_command(place, "down", check=False)
        assert result.returncode == 1
        assert "down --force" in result.stderr
        testing.lab_command(place, "down", "--force")
        assert left_behind(place) == []
        subprocess.run(["userdel", lab.user], check=True, timeout=20, stderr=subprocess.DEVNULL)

    def test_what_is_not_a_lab_is_not_touched(self) -> None:
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
    def test_two_labs_do_not_know_of_each_other(
        self, slurm_lab: testing.RunningLab, place: paths.LabPaths
    ) -> None:
        """Own ports, keys, users and queues; the end of one is nothing to the other."""
        other = testing.up(place, "--no-bridge", "--nodes", "1")
        before = pids(slurm_lab.place)
        assert other.user != slurm_lab.user
        job = other.sbatch(SLEEP, "--partition=host", "--output=/dev/null")
        other.wait_for(job, "RUNNING")
        assert slurm_lab.run(("squeue", "--noheader", f"--user={other.user}")).stdout == ""
        testing.lab_command(place, "down")
        assert pids(slurm_lab.place) == before
        again = slurm_lab.sbatch("#!/bin/sh\ntrue\n", "--partition=host")
        slurm_lab.wait_for(again, "COMPLETED")


class TestFaults:
    def test_a_taken_port_is_named_and_nothing_is_left(self, place: paths.LabPaths) -> None:
        """Port, component and the process that has it, in one line."""
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            result = testing.lab_command(
                place, "up", "--no-bridge", "--port-base", str(port - 1), check=False
            )
        assert result.returncode == 1
        assert f"penstock: port {port} for slurmdbd is taken by" in result.stderr
        assert f"pid {os.getpid()}" in result.stderr
        assert not place.directory.exists()

    def test_a_disk_that_is_too_small_is_one_line(self, place: paths.LabPaths) -> None:
        """Said before anything is made."""
        with small_disk(place.directory, megabytes=40):
            result = testing.lab_command(place, "up", "--no-bridge", check=False)
            assert result.returncode == 1
            assert "MB free on its disk, a lab needs 200 MB" in result.stderr
            assert list(place.directory.iterdir()) == []
            assert left_behind(place) == []

    @pytest.mark.parametrize("megabytes", [0.1, 16, 25, 32, 40])
    def test_a_disk_that_fills_up_meanwhile_is_one_line(
        self, place: paths.LabPaths, megabytes: float
    ) -> None:
        """The check came too early: whoever runs out of space first, the message is the same."""
        with small_disk(place.directory, megabytes=megabytes):
            program = (
                "from penstock.lab import places; places.NEW_LAB_MEGABYTES = 0;"
                "from penstock.cli.main import main; main()"
            )
            argv = (sys.executable, "-c", program, "lab", "up", "--no-bridge", "--dir", str(place.directory))
            env = {"PATH": os.environ["PATH"]}
            result = testing.run(argv, env=env, timeout=120, check=False, cwd=Path("/"))
            assert result.returncode == 1
            assert "penstock: no space left on the lab's disk" in result.stderr
            assert "Traceback" not in result.stderr
            assert list(place.directory.iterdir()) == []
            assert left_behind(place) == []

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_an_interrupted_start_leaves_nothing(self, place: paths.LabPaths, number: signal.Signals) -> None:
        """Ctrl-C in the middle of it, a kill, a closed terminal."""
        argv = [sys.executable, "-m", "penstock", "lab", "up", "--no-bridge", "--dir", str(place.directory)]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as starting:
            deadline = time.monotonic() + 20
            while not place.component_record("slurmdbd").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            starting.send_signal(number)
            _, said = starting.communicate(timeout=60)
        assert starting.returncode != 0
        assert "Traceback" not in said
        assert not place.directory.exists()
        assert left_behind(place) == []

    def test_a_second_up_at_the_same_time_is_told_to_wait(self, place: paths.LabPaths) -> None:
        """Two at once would start everything twice."""
        argv = [sys.executable, "-m", "penstock", "lab", "up", "--no-bridge", "--dir", str(place.directory)]
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as first:
            deadline = time.monotonic() + 20
            while not place.component_record("munged").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            second = testing.lab_command(place, "up", check=False)
            assert first.wait(timeout=60) == 0
        assert second.returncode == 1
        assert "another penstock is working on the lab" in second.stderr


class TestWholeLab:
    """With dev cluster, penstockd and hooks."""

    def test_it_is_up_in_time_and_gone_without_a_trace(self, place: paths.LabPaths) -> None:
        """Under 15 s; then down in the middle of bridged jobs, their launchers and pods included."""
        began = time.monotonic()
        running = testing.up(place)
        assert time.monotonic() - began < 15
        jobs = [running.sbatch(SLEEP, "--output=/dev/null", "--gres=gpu:1") for _ in range(3)]
        for job in jobs:
            running.wait_for(job, "RUNNING")
        testing.lab_command(place, "down")
        assert not place.directory.exists()
        assert left_behind(place) == []
        assert [process for process in processes.snapshot() if process.argv[-2:] == ("sleep", LONG)] == []
        assert str(place.directory) not in Path("/proc/self/mountinfo").read_text()

    def test_kubectl_shows_the_nodes_to_everybody(self, lab: testing.RunningLab) -> None:
        """Root and the lab's user each with the kubeconfig they get."""
        require_kubectl()
        argv = ("kubectl", "get", "nodes", "--output=name")
        nodes = [f"node/n{number}" for number in range(1, 5)]
        assert lab.run(argv).stdout.split() == nodes
        assert lab.run_as_user(argv).stdout.split() == nodes

    def test_only_root_may_change_the_cluster(self, lab: testing.RunningLab) -> None:
        """The user may look; creating is refused, and the administrator's kubeconfig is out of reach."""
        require_kubectl()
        refused = lab.run_as_user(("kubectl", "create", "namespace", "mine"), check=False)
        assert refused.returncode != 0
        assert "forbidden" in refused.stderr.lower()
        for private in (lab.place.admin_kubeconfig, lab.place.penstockd_kubeconfig, lab.place.tokens):
            assert "Permission denied" in lab.run_as_user(("cat", str(private)), check=False).stderr
        lab.run(("kubectl", "create", "namespace", "roots"))
        lab.run(("kubectl", "delete", "namespace", "roots", "--timeout=20s"))

    def test_killed_dev_cluster_and_daemon_come_back(self, place: paths.LabPaths) -> None:
        """And nothing else is restarted."""
        testing.up(place, "--nodes", "1")
        for victim in ("devcluster", "penstockd"):
            before = pids(place)
            kill(place, victim)
            testing.lab_command(place, "up")
            after = pids(place)
            assert {name for name in after if after[name] != before[name]} == {victim}
        assert testing.lab_command(place, "status").returncode == 0


def require_kubectl() -> None:
    if shutil.which("kubectl", path=commands.SYSTEM_PATH) is None:
        pytest.skip("kubectl is not installed")


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
        subprocess.run(argv, check=True, timeout=20)

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", str(self.directory)], check=True, timeout=20)
        self.directory.rmdir()
