"""A lab as a person uses it: brought up, used by root and others, broken, repaired, taken down without trace.

Not here: jobs that run as pods. Most tests share a lab with Slurm alone; those that break it make their own.
"""

from __future__ import annotations

import json
import os
import pwd
import signal

import pytest
from tests.e2e import labs

from penstock_lab import paths, processes, spec, teardown, testing


class TestJobs:
    def test_job_completes_and_is_accounted(self, slurm_lab: testing.RunningLab) -> None:
        """sbatch by an ordinary user, its output, its record."""
        job = slurm_lab.sbatch("#!/bin/sh\nid -un\n", "--partition=host", "--output=%j.out")
        slurm_lab.wait_for(job, "COMPLETED")
        assert slurm_lab.accounted(job, "State,ExitCode,User,Account") == [
            "COMPLETED",
            "0:0",
            slurm_lab.user,
            "research",
        ]
        assert (slurm_lab.home / f"{job}.out").read_text() == f"{slurm_lab.user}\n"

    def test_exit_code_is_accounted(self, slurm_lab: testing.RunningLab) -> None:
        """A failure is recorded with its exit code."""
        job = slurm_lab.sbatch("#!/bin/sh\nexit 7\n", "--partition=host")
        slurm_lab.wait_for(job, "FAILED")
        assert slurm_lab.accounted(job) == ["FAILED", "7:0"]

    def test_root_may_submit(self, slurm_lab: testing.RunningLab) -> None:
        """The user who made the lab may be root."""
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
        assert slurm_lab.job(job)["UserId"] == "root(0)"

    def test_eight_cpus_are_eight_jobs(self, slurm_lab: testing.RunningLab) -> None:
        """Jobs that ask for nothing share a node by CPU; the ninth waits."""
        jobs = [
            slurm_lab.sbatch(labs.SLEEP, "--partition=host", "--nodelist=n4", "--output=/dev/null")
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

    def test_gpus_are_allocated_and_accounted(self, slurm_lab: testing.RunningLab) -> None:
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

    def test_unknown_partition_is_refused(self, slurm_lab: testing.RunningLab) -> None:
        """sbatch says it, nothing is queued."""
        result = slurm_lab.run_as_user(("sbatch", "--partition=moon", "--wrap=true"), check=False)
        assert result.returncode == 1
        assert "invalid partition specified: moon" in result.stderr
        assert "Traceback" not in result.stderr

    def test_unreadable_script_is_refused(self, slurm_lab: testing.RunningLab) -> None:
        """Another user's script cannot be submitted."""
        script = slurm_lab.place.nas / "secret.sh"
        script.write_text("#!/bin/sh\ntrue\n")
        script.chmod(0o600)
        result = slurm_lab.run_as_user(("sbatch", "--partition=host", str(script)), check=False)
        script.unlink()
        assert result.returncode == 1
        assert result.stderr.strip() == f"sbatch: error: Unable to open file {script}"


class TestEnvironment:
    @pytest.mark.parametrize("root", [True, False])
    def test_eval_of_lab_env(self, slurm_lab: testing.RunningLab, root: bool) -> None:
        """In a plain shell, for root and for an ordinary user alike."""
        line = (
            f'eval "$({slurm_lab.place.bin}/penstock lab env --dir {slurm_lab.place.directory})"'
            ' && sinfo --noheader --format=%R && test -d "$PENSTOCK_NAS" && test -r "$SLURM_CONF"'
            " && penstock lab status --format json"
        )
        argv = ("env", "-i", f"PATH={os.environ['PATH']}", "sh", "-c", line)
        output = (slurm_lab.run(argv) if root else slurm_lab.run_as_user(argv)).stdout
        assert output.split()[:3] == ["gpu", "cpu", "host"]
        assert '"healthy": true' in output

    def test_private_files_are_not_readable(self, slurm_lab: testing.RunningLab) -> None:
        """The lab's user reads the configuration, and no key, database, state or administrator's file."""
        place = slurm_lab.place
        for private in (place.munge_key, place.slurmdbd_conf, place.database, place.controller_state):
            result = slurm_lab.run_as_user(("ls" if private.is_dir() else "cat", str(private)), check=False)
            assert "Permission denied" in result.stderr, private
        assert slurm_lab.run_as_user(("cat", str(place.slurm_conf))).stdout


class TestStatus:
    def test_status_shows_all_components_healthy(self, slurm_lab: testing.RunningLab) -> None:
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

    def test_status_table(self, slurm_lab: testing.RunningLab) -> None:
        """The same as text."""
        shown = testing.lab_command(slurm_lab.place, "status", COLUMNS="200").stdout
        assert "slurmctld" in shown
        assert str(labs.pids(slurm_lab.place)["slurmctld"]) in shown

    def test_drained_node_is_reported(self, slurm_lab: testing.RunningLab) -> None:
        """Although nothing has to be restarted."""
        update = ("scontrol", "update", "nodename=n3")
        slurm_lab.run((*update, "state=drain", "reason=test"))
        try:
            result = testing.lab_command(slurm_lab.place, "status", check=False)
            before = labs.pids(slurm_lab.place)
            testing.lab_command(slurm_lab.place, "up")
            assert labs.pids(slurm_lab.place) == before
        finally:
            slurm_lab.run((*update, "state=resume"))
        assert result.returncode == 1
        assert "node is drained" in result.stdout

    def test_no_lab_is_exit_code_3(self, place: paths.LabPaths) -> None:
        """Scripts can distinguish "none" from "broken"."""
        for command in ("status", "env"):
            result = testing.lab_command(place, command, check=False)
            assert result.returncode == 3
            assert "there is no lab in" in result.stderr


class TestUsers:
    def test_adduser_lets_a_user_submit(self, slurm_lab: testing.RunningLab) -> None:
        """Refused before, accepted after, with a folder on the NAS; a second call does no harm."""
        argv = ("sbatch", "--partition=host", "--wrap=true", "--output=/dev/null")
        refused = slurm_lab.run_as_user(argv, user=labs.GUEST, cwd=slurm_lab.place.nas, check=False)
        assert "Invalid account" in refused.stderr
        for _ in range(2):
            testing.lab_command(slurm_lab.place, "adduser", labs.GUEST, "--account", "teaching")
        job = slurm_lab.sbatch("#!/bin/sh\npwd\n", "--partition=host", "--output=out", user=labs.GUEST)
        slurm_lab.wait_for(job, "COMPLETED")
        assert slurm_lab.accounted(job, "User,Account") == [labs.GUEST, "teaching"]
        assert (
            (slurm_lab.place.nas_home(labs.GUEST) / "out").read_text().strip().endswith(f"/home/{labs.GUEST}")
        )

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("no-such-user",), "there is no user no-such-user on this machine"),
            ((labs.GUEST, "--account", "nope"), "there is no account nope in this lab"),
        ],
    )
    def test_unknown_users_and_accounts_are_usage_errors(
        self, slurm_lab: testing.RunningLab, arguments: tuple[str, ...], said: str
    ) -> None:
        """Exit code 2."""
        result = testing.lab_command(slurm_lab.place, "adduser", *arguments, check=False)
        assert result.returncode == 2
        assert said in result.stderr
        assert "Traceback" not in result.stderr

    def test_up_without_root_and_sudo_fails(self, slurm_lab: testing.RunningLab) -> None:
        """One line, and nothing was made."""
        place = testing.new_place()
        argv = (f"{slurm_lab.place.bin}/penstock", "lab", "up", "--dir", str(place.directory))
        result = slurm_lab.run_as_user(argv, check=False)
        assert result.returncode == 1
        assert result.stderr.startswith("penstock: the lab needs root or sudo")
        assert not place.directory.exists()

    def test_sudo_user_is_the_labs_user(self, place: paths.LabPaths) -> None:
        """No user is made for them, and none of theirs is removed."""
        testing.lab_command(place, "up", "--no-bridge", "--nodes", "1", SUDO_USER=labs.GUEST)
        lab = spec.load(place)
        assert (lab.user, lab.user_created) == (labs.GUEST, False)
        running = testing.RunningLab(place=place, user=labs.GUEST)
        job = running.sbatch("#!/bin/sh\ntrue\n", "--partition=host")
        running.wait_for(job, "COMPLETED")
        testing.lab_command(place, "down")
        assert pwd.getpwnam(labs.GUEST).pw_name == labs.GUEST


class TestRepair:
    def test_up_again_changes_nothing(self, slurm_lab: testing.RunningLab) -> None:
        """A healthy lab is left alone, to the last pid."""
        before = labs.pids(slurm_lab.place)
        testing.lab_command(slurm_lab.place, "up")
        assert labs.pids(slurm_lab.place) == before

    def test_up_with_another_size_is_refused(self, slurm_lab: testing.RunningLab) -> None:
        """A lab cannot be resized."""
        result = testing.lab_command(slurm_lab.place, "up", "--nodes", "5", check=False)
        assert result.returncode == 2
        assert "has nodes 4, not 5" in result.stderr

    def test_killed_components_are_restarted_alone(self, place: paths.LabPaths) -> None:
        """One by one, with the history of jobs intact."""
        lab = testing.up(place, "--no-bridge", "--nodes", "2")
        job = lab.sbatch("#!/bin/sh\nexit 3\n", "--partition=host")
        lab.accounted(job)
        for victim in ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd-n2"):
            before = labs.pids(place)
            labs.kill(place, victim)
            assert testing.lab_command(place, "status", check=False).returncode == 1
            testing.lab_command(place, "up")
            after = labs.pids(place)
            assert {name for name in after if after[name] != before[name]} == {victim}
        assert lab.accounted(job) == ["FAILED", "3:0"]
        again = lab.sbatch("#!/bin/sh\ntrue\n", "--partition=host")
        lab.wait_for(again, "COMPLETED")

    def test_up_recovers_from_a_crash_of_everything(self, place: paths.LabPaths) -> None:
        """As after a power cut: no process, the files as they were."""
        lab = testing.up(place, "--no-bridge", "--nodes", "2")
        job = lab.sbatch("#!/bin/sh\nexit 3\n", "--partition=host")
        lab.accounted(job)
        everything = teardown.belonging(place, processes.snapshot(), created_uid=None)
        for process in everything:
            processes.send(process.identity, signal.SIGKILL)
        assert processes.wait_gone([process.identity for process in everything], seconds=60) == []
        testing.lab_command(place, "up")
        assert testing.lab_command(place, "status").returncode == 0
        assert lab.accounted(job) == ["FAILED", "3:0"]

    def test_failing_component_shows_its_log(self, place: paths.LabPaths) -> None:
        """With a broken munge key: munged says why, the rest continues."""
        testing.up(place, "--no-bridge", "--nodes", "1")
        labs.kill(place, "munged")
        place.munge_key.chmod(0o600)
        place.munge_key.write_bytes(b"short")
        result = testing.lab_command(place, "up", check=False)
        assert result.returncode == 1
        assert "penstock: munged ended" in result.stderr
        assert "Keyfile must be at least 32 bytes" in result.stderr
        assert "Traceback" not in result.stderr
        assert labs.pids(place)["mariadbd"] is not None
