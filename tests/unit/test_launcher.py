"""The launcher as slurmd runs it, talking to a penstockd that the test plays."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.daemon import connections
from penstock.hooks import wire
from penstock.render import hooks

pytestmark = pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(), reason="hooks run under /usr/bin/python3"
)


class Stage:
    """Installed hooks, a listening socket, and the launcher's process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(folder / "s"))
        self.socket.listen()
        self.socket.settimeout(60)
        self.install()

    def install(self, *, release_timeout: int = 600) -> None:
        """Write the hooks; `release_timeout` is how long an Epilog may ask."""
        settings = hooks.HookSettings(
            libexec=str(self.folder),
            socket=str(self.folder / "s"),
            bridged_partitions=("gpu",),
            default_partition="gpu",
            release_timeout=release_timeout,
            slurm_conf="/etc/slurm/slurm.conf",
        )
        for file in hooks.render_hooks(settings):
            path = self.folder / file.name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(file.content)
            path.chmod(file.mode)

    def start(self, *arguments: str, script: bytes = b"#!/bin/sh\necho hi\n") -> subprocess.Popen[bytes]:
        (self.folder / "script").write_bytes(script)
        argv = [str(self.folder / "penstock-launch"), "/bin/sh", str(self.folder / "script"), *arguments]
        environment = {"SLURM_JOB_ID": "17", "GREETING": "it's me"}
        return self._run(argv, environment)

    def _run(self, argv: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.processes.append(process)
        return process

    def close(self) -> None:
        """Nothing of a failed test goes on."""
        self.socket.close()
        for process in self.processes:
            process.kill()
            process.communicate()

    def hook(self, name: str, **environment: str) -> subprocess.Popen[bytes]:
        return self._run([str(self.folder / name)], environment)

    @contextlib.contextmanager
    def accept(self) -> Iterator[tuple[socket.socket, connections.Message]]:
        """The next connection and its first message."""
        peer, _ = self.socket.accept()
        with peer:
            peer.settimeout(60)
            fields = wire.receive(peer)
            assert fields is not None
            yield peer, connections.parse(fields)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def finish(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_it_hands_over_what_it_was_given(stage: Stage) -> None:
    """Script, interpreter, arguments, environment, directory and output, byte for byte."""
    process = stage.start("a", "b c", script=b"#!/bin/sh\nexit \xff\n")
    with stage.accept() as (peer, message):
        assert message.verb == "launch"
        assert message.number("slurm_job_id") == 17
        assert message.one("interpreter") == b"/bin/sh"
        assert message.one("script") == b"#!/bin/sh\nexit \xff\n"
        assert message.all("argument") == (b"a", b"b c")
        assert b"GREETING=it's me" in message.all("environment")
        assert message.one("workdir") == str(Path.cwd()).encode()
        assert message.one("stdout").startswith(b"pipe:")
        assert message.one("umask") == f"{current_umask():04o}".encode()
        assert message.all("stdin")
        assert (message.one("attach"), message.number("skip")) == (b"0", 0)
        peer.sendall(wire.pack("exit", "0"))
    assert finish(process) == (0, b"", b"")


def current_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def test_python_adds_nothing_to_the_environment(stage: Stage) -> None:
    """In a C locale Python sets LC_CTYPE for itself; the job must not inherit that."""
    process = stage.start()
    with stage.accept() as (peer, message):
        assert set(message.all("environment")) == {b"SLURM_JOB_ID=17", b"GREETING=it's me"}
        peer.sendall(wire.pack("exit", "0"))
    assert finish(process)[0] == 0


def test_it_says_that_suspending_does_not_reach_pods(stage: Stage) -> None:
    """SIGTSTP is how Slurm announces a suspension: a word, and on it goes."""
    process = stage.start()
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("started"))
        process.send_signal(signal.SIGTSTP)
        assert process.stderr is not None
        assert b"suspending does not reach pods" in process.stderr.readline()
        peer.sendall(wire.pack("exit", "3"))
    assert finish(process)[0] == 3


def test_it_ends_as_the_container_did(stage: Stage) -> None:
    """Output, notes and the exit code."""
    process = stage.start()
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("started") + wire.pack("output", "line\n"))
        peer.sendall(wire.pack("note", "OOMKilled") + wire.pack("exit", "7"))
    assert finish(process) == (7, b"line\n", b"penstock: OOMKilled\n")


@pytest.mark.parametrize("number", [2, 9, 13, 14, 15, 24, 25, 34])
def test_it_dies_of_the_containers_signal(stage: Stage, number: int) -> None:
    """Slurm records the signal itself, also one that Python ignores or the launcher uses."""
    process = stage.start()
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("started") + wire.pack("signal", str(number)))
    assert finish(process)[0] == -number


def test_it_says_when_all_is_written(stage: Stage) -> None:
    """And counts its two streams apart, to go on with both where it stopped."""
    process = stage.start()
    with stage.accept() as (peer, _):
        peer.sendall(
            wire.pack("started") + wire.pack("output", "out", "1") + wire.pack("output", "error", "2")
        )
        peer.sendall(wire.pack("sync"))
        assert wire.receive(peer) == [b"synced"]
    with stage.accept() as (peer, message):
        assert (message.number("skip"), message.number("skip_error")) == (3, 5)
        peer.sendall(wire.pack("exit", "0"))
    assert finish(process) == (0, b"out", b"error")


def test_it_attaches_after_penstockd_was_killed(stage: Stage) -> None:
    """Once started it never asks for another start, and says how much output it has."""
    process = stage.start()
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("started") + wire.pack("output", "half "))
    with stage.accept() as (peer, message):
        assert message.one("attach") == b"1"
        assert message.number("skip") == 5
        peer.sendall(wire.pack("output", "whole\n") + wire.pack("exit", "0"))
    assert finish(process) == (0, b"half whole\n", b"")


def test_it_asks_again_when_it_was_not_told_that_the_job_started(stage: Stage) -> None:
    """A penstockd that died before it answered is asked to launch, which finds what is there."""
    process = stage.start()
    with stage.accept():
        pass
    with stage.accept() as (peer, message):
        assert message.one("attach") == b"0"
        peer.sendall(wire.pack("exit", "0"))
    assert finish(process)[0] == 0


def test_it_passes_signals_on(stage: Stage) -> None:
    """scancel's SIGTERM becomes a message; the launcher waits for the end."""
    process = stage.start()
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("started") + wire.pack("output", "."))
        assert process.stdout is not None
        assert process.stdout.read(1) == b"."
        process.send_signal(signal.SIGTERM)
        assert wire.receive(peer) == [b"signal", b"number", b"15", b"everyone", b"0"]
        peer.sendall(wire.pack("exit", "143"))
    assert finish(process)[0] == 143


def test_slurms_way_of_ending_a_job_is_for_all_processes(stage: Stage) -> None:
    """SIGCONT and SIGTERM together mean everybody; SIGUSR1 alone means the script."""
    process = stage.start()
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("started") + wire.pack("output", "."))
        assert process.stdout is not None
        assert process.stdout.read(1) == b"."
        process.send_signal(signal.SIGUSR1)
        assert wire.receive(peer) == [b"signal", b"number", b"10", b"everyone", b"0"]
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        assert wire.receive(peer) == [b"signal", b"number", b"15", b"everyone", b"1"]
        peer.sendall(wire.pack("exit", "0"))
    assert finish(process)[0] == 0


def test_an_alarm_is_a_signal_like_others(stage: Stage) -> None:
    """Although the launcher has alarms of its own: no more and no fewer than were sent."""
    process = stage.start()
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("started") + wire.pack("output", "."))
        assert process.stdout is not None
        assert process.stdout.read(1) == b"."
        for number in (14, 10, 14, 12):
            process.send_signal(number)
            assert wire.receive(peer) == [b"signal", b"number", b"%d" % number, b"everyone", b"0"]
        peer.sendall(wire.pack("exit", "0"))
    assert finish(process)[0] == 0


def test_a_signal_while_penstockd_is_away_is_not_lost(stage: Stage) -> None:
    """It is told after the next connect."""
    process = stage.start()
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("started") + wire.pack("output", "."))
        assert process.stdout is not None
        process.stdout.read(1)
    process.send_signal(signal.SIGTERM)
    with stage.accept() as (peer, _):
        assert wire.receive(peer) == [b"signal", b"number", b"15", b"everyone", b"0"]
        peer.sendall(wire.pack("exit", "0"))
    assert finish(process)[0] == 0


def test_a_signal_that_was_not_delivered_is_told_again(stage: Stage) -> None:
    """As it was told first, and not once more after penstockd has said that it was delivered."""
    process = stage.start()
    told = [b"signal", b"number", b"10", b"everyone", b"0"]
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("started") + wire.pack("output", "."))
        assert process.stdout is not None
        process.stdout.read(1)
        process.send_signal(signal.SIGUSR1)
        assert wire.receive(peer) == told
    with stage.accept() as (peer, _):
        assert wire.receive(peer) == told
        peer.sendall(wire.pack("delivered") + wire.pack("output", "."))
        process.stdout.read(1)
    with stage.accept() as (peer, _):
        peer.settimeout(0.3)
        with pytest.raises(TimeoutError):
            wire.receive(peer)
        peer.sendall(wire.pack("exit", "0"))
    assert finish(process)[0] == 0


def test_a_note_is_written_once(stage: Stage) -> None:
    """Also when a penstockd that was killed had told it already."""
    process = stage.start()
    for last in (False, True):
        with stage.accept() as (peer, _):
            peer.sendall(wire.pack("note", "no room") + (wire.pack("exit", "1") if last else b""))
    assert finish(process) == (1, b"", b"penstock: no room\n")


def test_a_job_that_has_not_started_dies_of_sigterm_at_once(stage: Stage) -> None:
    """Nothing runs yet, so nothing is waited for."""
    process = stage.start()
    with stage.accept():
        process.send_signal(signal.SIGTERM)
        assert finish(process)[0] == -signal.SIGTERM


def test_by_hand_it_says_what_it_is(stage: Stage) -> None:
    """No traceback for the curious."""
    result = subprocess.run(
        [str(stage.folder / "penstock-launch")], capture_output=True, timeout=60, check=False
    )
    assert result.returncode == 126
    assert b"use sbatch" in result.stderr


def test_an_unreadable_script_is_one_line(stage: Stage) -> None:
    """The job fails with words."""
    argv = [str(stage.folder / "penstock-launch"), "/bin/sh", str(stage.folder / "none")]
    result = subprocess.run(argv, env={"SLURM_JOB_ID": "1"}, capture_output=True, timeout=60, check=False)
    assert (result.returncode, result.stderr.count(b"\n")) == (126, 1)


@pytest.mark.parametrize("name", ["penstock-prolog", "penstock-epilog"])
def test_other_partitions_are_not_asked_about(stage: Stage, name: str) -> None:
    """The hook leaves before it connects."""
    process = stage.hook(name, SLURM_JOB_PARTITION="host", SLURM_JOB_ID="1")
    assert process.wait(timeout=60) == 0
    process.communicate()
    stage.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        stage.socket.accept()


@pytest.mark.parametrize(("word", "code"), [("yes", 0), ("no", 1)])
def test_the_prolog_says_what_penstockd_says(stage: Stage, word: str, code: int) -> None:
    """Zero lets the job start, anything else requeues it."""
    process = stage.hook(
        "penstock-prolog",
        SLURM_JOB_PARTITION="gpu",
        SLURM_JOB_ID="17",
        SLURM_JOB_UID="1001",
        SLURM_JOB_GID="1001",
        SLURM_JOB_USER="alice",
        SLURM_JOB_RESTART_COUNT="2",
    )
    with stage.accept() as (peer, message):
        assert (message.verb, message.number("job"), message.number("uid"), message.number("restart")) == (
            "admit",
            17,
            1001,
            2,
        )
        peer.sendall(wire.pack(word))
    process.communicate(timeout=60)
    assert process.returncode == code


def test_the_epilog_asks_until_the_pods_are_gone(stage: Stage) -> None:
    """`wait` is not an answer."""
    process = stage.hook(
        "penstock-epilog", SLURM_JOB_PARTITION="gpu", SLURM_JOB_ID="17", SLURMD_NODENAME="n1"
    )
    for word in ("wait", "gone"):
        with stage.accept() as (peer, message):
            assert (message.verb, message.number("job"), message.one("node")) == ("release", 17, b"n1")
            peer.sendall(wire.pack(word))
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_the_epilog_does_not_free_what_it_cannot_know(stage: Stage) -> None:
    """Without an answer in time the node is left to be drained."""
    stage.install(release_timeout=2)
    stage.socket.close()
    process = stage.hook(
        "penstock-epilog", SLURM_JOB_PARTITION="gpu", SLURM_JOB_ID="17", SLURMD_NODENAME="n1"
    )
    process.communicate(timeout=60)
    assert process.returncode == 1


def test_the_epilog_leaves_a_drained_node_to_penstockd(stage: Stage) -> None:
    """At the end of its time it asks for a drain; when that is done it may end well."""
    stage.install(release_timeout=2)
    process = stage.hook(
        "penstock-epilog", SLURM_JOB_PARTITION="gpu", SLURM_JOB_ID="17", SLURMD_NODENAME="n1"
    )
    verb = ""
    while verb != "abandon":
        with stage.accept() as (peer, message):
            verb = message.verb
            peer.sendall(wire.pack("drained" if verb == "abandon" else "wait"))
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("partition", "step", "code"), [("gpu", "", 0), ("gpu", "0", 1), ("host", "0", 0), ("gpuX", "0", 0)]
)
def test_the_task_prolog_stops_steps_of_bridged_jobs(
    stage: Stage, partition: str, step: str, code: int
) -> None:
    """Only the batch script may start on the node."""
    environment = {"SLURM_JOB_PARTITION": partition, "SLURM_STEP_ID": step, "PATH": os.defpath}
    result = subprocess.run(
        [str(stage.folder / "penstock-task-prolog")],
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == code
    assert (b"print penstock:" in result.stdout) == bool(code)
