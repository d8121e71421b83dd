"""The pod's side of Slurm's commands, in every shell that images have."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from penstock.calls import requests
from tests.unit.podstages import PodStage, Server, stage

__all__ = ["stage"]  # pytest finds the fixture by its name

EVERY_BYTE = bytes(range(1, 256))


def call_of(server: Server) -> tuple[str, requests.Request]:
    """The next frame, which announces a call."""
    frame = server.hear()
    assert frame is not None
    verb, key = frame.words
    assert verb == "call"
    return requests.key(key), requests.parse(frame.body)


def test_request_is_byte_exact(stage: PodStage, tmp_path: Path) -> None:
    """Words, environment, folder and umask, whatever is in them."""
    folder = tmp_path / "it's\nhere"
    folder.mkdir()
    environment = {b"PATH": os.environb[b"PATH"], b"A-B.c": b"x\n", b"BASH_FUNC_f%%": b"() { :; }", b"E": b""}
    server, words = stage.ready(), (EVERY_BYTE, b"", b"a b", b"-n", b"x\ny\n")
    stage.call("scontrol", *words, env=environment, cwd=folder, umask=0o027)
    _, request = call_of(server)
    assert (request.name, request.words) == ("scontrol", words)
    assert (request.folder, request.umask) == (os.fsencode(folder), b"0027")
    assert request.environment.items() >= environment.items()


def test_output_and_exit_code(stage: PodStage) -> None:
    """Both streams in pieces, and the code at last."""
    server = stage.ready()
    process = stage.call("scontrol", "ping")
    key, _ = call_of(server)
    server.say("print", key, 1, 0, body=b"one\n" + EVERY_BYTE)
    server.say("print", key, 2, 0, body=b"trouble\n")
    server.say("print", key, 1, 259, body=b"\0two")
    server.say("end", key, "exit", 7)
    assert process.communicate(timeout=60) == (b"one\n" + EVERY_BYTE + b"\0two", b"trouble\n")
    assert process.returncode == 7
    took = [["took", key, *place] for place in (("1", "259"), ("2", "8"), ("1", "263"))]
    assert [server.words() for _ in range(4)] == [*took, ["done", key]]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1])
def test_death_by_a_signal(stage: PodStage, number: int) -> None:
    """The caller sees how the command ended."""
    server = stage.ready()
    process = stage.call("scontrol")
    key, _ = call_of(server)
    server.say("end", key, "signal", number)
    assert process.wait(60) == -number
    assert server.words() == ["done", key]


def test_nothing_is_left(stage: PodStage) -> None:
    """Neither files nor processes."""
    server = stage.ready()
    process = stage.call("scontrol")
    key, _ = call_of(server)
    server.say("end", key, "exit", 0)
    process.wait(60)
    assert server.words() == ["done", key]
    deadline = time.monotonic() + 60
    while list((stage.run / "calls").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_signals_are_passed_on(stage: PodStage) -> None:
    """To the command, which may end by them or not."""
    server = stage.ready()
    process = stage.call("scontrol")
    key, _ = call_of(server)
    for name in ("TERM", "USR1", "INT", "HUP"):
        process.send_signal(signal.Signals[f"SIG{name}"])
        assert server.words() == ["signal", key, name]
    server.say("print", key, 1, 0, body=b"still here\n")
    server.say("end", key, "exit", 3)
    assert process.communicate(timeout=60) == (b"still here\n", b"")
    assert process.returncode == 3


def test_killed_call_is_reported(stage: PodStage) -> None:
    """SIGKILL of the caller, whom nobody else would miss."""
    server = stage.ready()
    process = stage.call("scontrol")
    key, _ = call_of(server)
    process.kill()
    assert server.words() == ["gone", key]


def test_calls_are_announced_again(stage: PodStage) -> None:
    """After a connection broke, with what was printed meanwhile lost and sent again, in part or in whole."""
    first = stage.ready()
    process = stage.call("scontrol", "a b")
    key, request = call_of(first)
    first.say("print", key, 1, 0, body=b"0123456789")
    assert first.words() == ["took", key, "1", "10"]
    first.cut()
    second = stage.serve()
    assert call_of(second) == (key, request)
    assert second.words() == ["ready"]
    second.say("print", key, 1, 4, body=b"456789abc")
    second.say("print", key, 1, 0, body=b"0123456789")
    second.say("end", key, "exit", 0)
    assert process.communicate(timeout=60) == (b"0123456789abc", b"")


def test_pieces_that_overlap(stage: PodStage) -> None:
    """What is sent again comes in other pieces, while the first ones wait for a caller that is slow."""
    server = stage.ready()
    process = stage.call("scontrol")
    key, _ = call_of(server)
    process.send_signal(signal.SIGSTOP)
    server.say("print", key, 1, 0, body=b"0123")
    server.say("print", key, 1, 0, body=b"012345")
    server.say("print", key, 1, 4, body=b"45")
    server.say("end", key, "exit", 0)
    server.say("again", key)
    call_of(server)
    pieces = sorted(path.read_bytes() for path in (stage.run / "calls" / key).glob("print.*"))
    assert pieces == [b"0123", b"012345", b"45"]  # none took another one's place
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=60) == (b"012345", b"")


def test_server_that_hangs_is_replaced(stage: PodStage) -> None:
    """In a write to a connection that nobody reads."""
    first = stage.ready()
    calls = [stage.call("scontrol", "x" * 100_000) for _ in range(3)]
    deadline = time.monotonic() + 60
    while len(list((stage.run / "calls").glob("*/ready"))) < len(calls):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    second = stage.serve()
    assert first.process.wait(60) == -signal.SIGKILL
    keys = {call_of(second)[0] for _ in calls}
    assert len(keys) == len(calls)
    for key in keys:
        second.say("end", key, "exit", 0)
    assert [call.wait(60) for call in calls] == [0, 0, 0]


def test_calls_wait_for_a_connection(stage: PodStage) -> None:
    """A call made before penstockd came is found."""
    process = stage.call("scontrol")
    deadline = time.monotonic() + 60
    while not list((stage.run / "calls").glob("*/ready")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server = stage.serve()
    key, _ = call_of(server)
    server.say("end", key, "exit", 4)
    assert process.wait(60) == 4


def test_many_calls_at_once(stage: PodStage) -> None:
    """Each has an id of its own and its own answer."""
    server = stage.ready()
    processes = [stage.call("scontrol", str(number)) for number in range(20)]
    for _ in processes:
        frame = server.hear()
        while frame is not None and frame.words[0] != "call":
            frame = server.hear()
        assert frame is not None
        word = requests.parse(frame.body).words[0]
        server.say("print", frame.words[1], 1, 0, body=word)
        server.say("end", frame.words[1], "exit", int(word))
    for number, process in enumerate(processes):
        assert process.communicate(timeout=60)[0] == str(number).encode()
        assert process.returncode == number


def test_closed_output_does_not_end_a_command(stage: PodStage) -> None:
    """As with `squeue | head -n1`."""
    server = stage.ready()
    process = stage.call("scontrol")
    key, _ = call_of(server)
    assert process.stdout is not None
    process.stdout.close()
    server.say("print", key, 1, 0, body=b"nobody reads this\n")
    assert server.words() == ["took", key, "1", "18"]
    server.say("end", key, "exit", 5)
    assert process.wait(60) == 5


def test_closed_streams(stage: PodStage) -> None:
    """`scontrol <&- >&- 2>&-`: nothing of the shim's own takes their place."""
    server = stage.ready()
    shell = [*stage.shell, "-c", f"{' '.join(stage.shell)} {stage.folder}/scontrol x <&- >&- 2>&-; echo $?"]
    process = subprocess.Popen(shell, stdout=subprocess.PIPE)
    key, _ = call_of(server)
    server.say("print", key, 1, 0, body=b"x")
    assert server.words() == ["took", key, "1", "1"]
    server.say("end", key, "exit", 6)
    assert process.communicate(timeout=60)[0] == b"6\n"


# -- input ---------------------------------------------------------------------------------------------


def test_standard_input_is_left_alone(stage: PodStage) -> None:
    """Until the command wants it: a `while read` loop around it goes on."""
    server = stage.ready()
    inner = f"{' '.join(stage.shell)} {stage.folder}/sbatch job.sh"
    loop = f"while read -r line; do echo $line; {inner}; done"
    process = subprocess.Popen(
        ["sh", "-c", loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(b"a\nb\n")
    process.stdin.close()
    process.stdin = None
    for _ in range(2):
        key, _ = call_of(server)
        server.say("end", key, "exit", 0)
        assert server.words() == ["done", key]
    assert process.communicate(timeout=60)[0] == b"a\nb\n"


def test_standard_input_arrives(stage: PodStage) -> None:
    """Whole and in order, also over a connection that breaks; read only as fast as it is taken."""
    data = os.urandom(700_001)
    server = stage.ready()
    process = stage.call("sbatch", stdin=subprocess.PIPE)
    key, _ = call_of(server)
    writer = threading.Thread(target=lambda: process.communicate(data), daemon=True)
    writer.start()
    server.say("feed", key)
    server, got = receive(server, stage, key, most=200_000)
    server.say("feed", key)
    server, got = receive(server, stage, key, got=got)
    assert got == data
    server.say("end", key, "exit", 0)
    writer.join(60)


def receive(
    server: Server, stage: PodStage, key: str, *, got: bytes = b"", most: int = 0
) -> tuple[Server, bytes]:
    """Input until its end, or until `most` bytes; then over a new connection."""
    while not most or len(got) < most:
        frame = server.hear()
        assert frame is not None
        match frame.words:
            case ["eof", _, offset]:
                assert int(offset) == len(got)
                return server, got
            case ["in", _, offset]:
                assert int(offset) <= len(got)
                got += frame.body if int(offset) == len(got) else b""
                server.say("taken", key, offset)
    server.cut()
    return stage.serve(), got


def test_files_are_read_in_the_pod(stage: PodStage, tmp_path: Path) -> None:
    """From the caller's folder, as the caller."""
    (tmp_path / "my job.sh").write_bytes(b"#!/bin/sh\n" + EVERY_BYTE)
    server = stage.ready()
    stage.call("sbatch", cwd=tmp_path)
    key, _ = call_of(server)
    server.say("open", key, 0, body=b"my job.sh")
    frame = server.hear()
    assert frame is not None
    assert (frame.words, frame.body) == (("file", key, "0"), b"#!/bin/sh\n" + EVERY_BYTE)
    server.say("open", key, 1, body=b"nothing here")
    frame = server.hear()
    assert frame is not None
    assert (frame.words, frame.body) == (("nofile", key, "1"), b"No such file or directory")
