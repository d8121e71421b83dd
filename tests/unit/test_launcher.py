"""The launcher as slurmd runs it; the test plays penstockd."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import types
from pathlib import Path

import pytest

from penstock.hooks import launch, wire
from tests.unit import hookstages
from tests.unit.hookstages import Stage, finish, stage

__all__ = ["stage"]  # pytest finds the fixture by its name

pytestmark = hookstages.NEEDS_PYTHON


def test_request_has_all_that_slurmd_gave(stage: Stage) -> None:
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


@pytest.fixture(scope="module")
def latin(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a locale that is not UTF-8."""
    folder = tmp_path_factory.mktemp("locales")
    program = shutil.which("localedef")
    if program is None or not Path("/usr/share/i18n/charmaps").is_dir():
        pytest.skip("locales cannot be made here")
    argv = (
        program,
        "--no-archive",
        "-c",
        "-i",
        "de_DE",
        "-f",
        "ISO-8859-1",
        str(folder / "de_DE.ISO-8859-1"),
    )
    subprocess.run(argv, check=False, capture_output=True, timeout=60)
    if not (folder / "de_DE.ISO-8859-1").is_dir():
        pytest.skip("localedef made no locale")
    return str(folder)


def test_request_is_byte_exact_in_any_locale(stage: Stage, latin: str) -> None:
    """Arguments, working directory and output file."""
    name = "Ergebnis für €".encode()
    folder = os.fsencode(stage.folder) + b"/" + name
    Path(os.fsdecode(folder)).mkdir()
    with open(folder + b"/" + name, "wb") as output:  # noqa: PTH123  # bytes
        arguments = (name, b"\xff\xfe", b"", b"a b")
        process = stage.start(*arguments, output=output, cwd=folder, LC_ALL="de_DE.ISO-8859-1", LOCPATH=latin)
        with stage.accept() as (peer, message):
            assert message.all("argument") == arguments
            assert message.one("interpreter") == b"/bin/sh"
            assert message.one("workdir") == folder
            assert message.one("stdout") == folder + b"/" + name
            peer.sendall(wire.pack("exit", "0"))
        assert finish(process)[0] == 0


def test_empty_arguments_are_kept(stage: Stage) -> None:
    """Also the last one."""
    process = stage.start("", "a", "", "")
    with stage.accept() as (peer, message):
        assert message.all("argument") == (b"", b"a", b"", b"")
        peer.sendall(wire.pack("exit", "0"))
    assert finish(process)[0] == 0


def current_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def test_python_adds_nothing_to_the_environment(stage: Stage) -> None:
    """In a C locale Python sets LC_CTYPE for itself; the job must not inherit it."""
    process = stage.start()
    with stage.accept() as (peer, message):
        assert set(message.all("environment")) == {b"SLURM_JOB_ID=17", b"GREETING=it's me"}
        peer.sendall(wire.pack("exit", "0"))
    assert finish(process)[0] == 0


def test_suspend_prints_a_warning(stage: Stage) -> None:
    """SIGTSTP announces `scontrol suspend`; the launcher continues."""
    process = stage.start()
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("started"))
        process.send_signal(signal.SIGTSTP)
        assert process.stderr is not None
        assert b"suspending does not reach pods" in process.stderr.readline()
        peer.sendall(wire.pack("exit", "3"))
    assert finish(process)[0] == 3


def test_output_notes_and_exit_code(stage: Stage) -> None:
    process = stage.start()
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("started") + wire.pack("output", "line\n"))
        peer.sendall(wire.pack("note", "OOMKilled") + wire.pack("exit", "7"))
    assert finish(process) == (7, b"line\n", b"penstock: OOMKilled\n")


@pytest.mark.parametrize("number", [2, 9, 13, 14, 15, 24, 25, 34])
def test_launcher_dies_of_the_containers_signal(stage: Stage, number: int) -> None:
    """Slurm records the signal, also one that Python ignores or the launcher uses."""
    process = stage.start()
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("started") + wire.pack("signal", str(number)))
    assert finish(process)[0] == -number


@pytest.mark.parametrize("words", [("output", "line\n"), ("note", "late")])
def test_full_disk_does_not_change_the_exit_code(stage: Stage, words: tuple[str, ...]) -> None:
    """Even if the message about lost output cannot be written."""
    with Path("/dev/full").open("wb") as full:
        process = stage.start(output=full)
        with stage.accept() as (peer, _):
            peer.sendall(wire.pack("started") + wire.pack(*words) + wire.pack("exit", "0"))
        assert finish(process)[0] == 0


@pytest.mark.parametrize("number", [65, 127])
def test_invalid_signal_number_is_an_exit_code(stage: Stage, number: int) -> None:
    """There is no signal 65: the number is the script's own."""
    process = stage.start()
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("started") + wire.pack("signal", str(number)))
    assert finish(process) == (128 + number, b"", b"")


def test_sync_is_answered_after_output(stage: Stage) -> None:
    """The offsets of both streams are counted separately, to continue there after a reconnect."""
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


def test_launcher_attaches_after_a_reconnect(stage: Stage) -> None:
    """Once started it never asks for another start, and sends how much output it has."""
    process = stage.start()
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("started") + wire.pack("output", "half "))
    with stage.accept() as (peer, message):
        assert message.one("attach") == b"1"
        assert message.number("skip") == 5
        peer.sendall(wire.pack("output", "whole\n") + wire.pack("exit", "0"))
    assert finish(process) == (0, b"half whole\n", b"")


def test_launch_is_repeated_until_started(stage: Stage) -> None:
    """A penstockd that died before it answered is asked to launch again and finds the existing pods."""
    process = stage.start()
    with stage.accept():
        pass
    with stage.accept() as (peer, message):
        assert message.one("attach") == b"0"
        peer.sendall(wire.pack("exit", "0"))
    assert finish(process)[0] == 0


def test_signals_are_forwarded(stage: Stage) -> None:
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


def test_sigcont_with_sigterm_is_for_all_processes(stage: Stage) -> None:
    """SIGUSR1 alone is for the script."""
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


def test_sigalrm_is_forwarded(stage: Stage) -> None:
    """Although the launcher uses alarms itself: exactly as many as were sent."""
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


def test_signal_without_a_connection_is_sent_later(stage: Stage) -> None:
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


def test_undelivered_signal_is_sent_again(stage: Stage) -> None:
    """Unchanged, and never after penstockd has confirmed it."""
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
    """Also if a restarted penstockd sends it again."""
    process = stage.start()
    for last in (False, True):
        with stage.accept() as (peer, _):
            peer.sendall(wire.pack("note", "no room") + (wire.pack("exit", "1") if last else b""))
    assert finish(process) == (1, b"", b"penstock: no room\n")


def test_error_is_reported_and_retried(stage: Stage) -> None:
    """A penstockd of another version may be replaced; then the job continues."""
    process = stage.start()
    for _ in range(2):
        with stage.accept() as (peer, _message):
            peer.sendall(wire.pack("error", "launch: skip is missing"))
    with stage.accept() as (peer, _message):
        peer.sendall(wire.pack("exit", "0"))
    code, _, said = finish(process)
    assert code == 0
    assert said.count(b"penstockd cannot serve this job: launch: skip is missing") == 1


@pytest.mark.parametrize("started", [False, True])
def test_lasting_errors_end_a_job_before_its_start(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], started: bool
) -> None:
    """A script that has started may be running well, so nothing ends it."""
    now = 1000.0
    monkeypatch.setattr(launch, "time", types.SimpleNamespace(monotonic=lambda: now))
    launcher = launch.Launcher("", [], commands="", slurm_conf="")
    launcher.started = started
    while now < 1000.0 + (launch.ERROR_SECONDS if not started else 86400):
        assert launcher.act([b"error", b"no"]) is None
        now += 2.0
    if started:
        return
    assert launcher.act([b"error", b"no"]) == launch.CANNOT_RUN
    assert capfd.readouterr().err.splitlines() == [
        "penstock: penstockd cannot serve this job: no (is it of another version? asking again)",
        "penstock: penstockd still answers with errors: the job is given up",
    ]


def test_old_error_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two errors hours apart the job was served."""
    now = 1000.0
    monkeypatch.setattr(launch, "time", types.SimpleNamespace(monotonic=lambda: now))
    launcher = launch.Launcher("", [], commands="", slurm_conf="")
    assert launcher.act([b"error", b"no"]) is None
    now += 2 * launch.ERROR_SECONDS
    assert launcher.act([b"error", b"no"]) is None


def test_sigterm_before_the_start_ends_the_launcher(stage: Stage) -> None:
    """Nothing runs yet, so there is nothing to wait for."""
    process = stage.start()
    with stage.accept():
        process.send_signal(signal.SIGTERM)
        assert finish(process)[0] == -signal.SIGTERM


def test_run_by_hand_prints_usage(stage: Stage) -> None:
    result = subprocess.run(
        [str(stage.folder / "penstock-launch")], capture_output=True, timeout=60, check=False
    )
    assert result.returncode == 126
    assert b"use sbatch" in result.stderr


def test_unreadable_script_is_one_line(stage: Stage) -> None:
    argv = [str(stage.folder / "penstock-launch"), "/bin/sh", str(stage.folder / "none")]
    result = subprocess.run(argv, env={"SLURM_JOB_ID": "1"}, capture_output=True, timeout=60, check=False)
    assert (result.returncode, result.stderr.count(b"\n")) == (126, 1)
