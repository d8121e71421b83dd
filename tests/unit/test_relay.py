"""The launcher runs Slurm's commands for its pods; the test plays penstockd, and the commands are scripts."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from penstock.daemon import connections
from penstock.hooks import relay, wire
from tests.unit import hookstages
from tests.unit.hookstages import Stage, finish, stage

__all__ = ["stage"]  # pytest finds the fixture by its name

pytestmark = hookstages.NEEDS_PYTHON

KEY = "17-4"


class Peer:
    """penstockd's end of one connection."""

    def __init__(self, sock: socket.socket, request: connections.Message) -> None:
        self.sock, self.request = sock, request

    def about(self, verb: str, *fields: bytes | str, key: str = KEY) -> None:
        self.sock.sendall(wire.pack("command", verb, "id", key, *fields))

    def hear(self) -> connections.Message:
        fields = wire.receive(self.sock)
        assert fields is not None
        return connections.parse(fields)

    def output(self, key: str = KEY) -> tuple[dict[int, bytes], tuple[str, int]]:
        """All that the command prints, confirmed as it comes, and its end."""
        printed = {1: b"", 2: b""}
        while True:
            message = self.hear()
            assert message.one("id") == key.encode()
            if message.verb == "ended":
                return printed, (message.one("how").decode(), message.number("number"))
            stream = message.number("stream")
            assert message.number("offset") == len(printed[stream])
            printed[stream] += message.one("data")
            self.about("confirm", "stream", str(stream), "offset", str(len(printed[stream])), key=key)

    def end(self) -> None:
        self.sock.sendall(wire.pack("exit", "0"))


def command(stage: Stage, text: str, name: str = "squeue") -> None:
    """A command of Slurm's."""
    (stage.folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (stage.folder / name).chmod(0o755)


@contextlib.contextmanager
def connected(stage: Stage) -> Iterator[Peer]:
    with stage.accept() as (sock, request):
        yield Peer(sock, request)


def test_command_with_words_variables_and_streams(stage: Stage) -> None:
    """Exactly the given ones, besides the site's SLURM_CONF; nothing to read."""
    command(stage, 'for word; do echo "[$word]"; done; /usr/bin/env; echo trouble >&2; cat; exit 7')
    process = stage.start(SECRET="mine")
    with connected(stage) as peer:
        assert peer.request.all("relays") == (b"1",)
        peer.about(
            "run", "program", "squeue", "word", b"a b", "word", b"", "word", b"\xff", "variable", b"A=x=y"
        )
        printed, end = peer.output()
        peer.about("forget")
        peer.end()
    lines = printed[1].split(b"\n")
    assert lines[:3] == [b"[a b]", b"[]", b"[\xff]"]
    assert {b"A=x=y", b"SLURM_CONF=/etc/slurm/slurm.conf"} <= set(lines)
    assert not [line for line in lines if line.startswith((b"SECRET", b"SLURM_JOB_ID", b"GREETING"))]
    assert (printed[2], end) == (b"trouble\n", ("exit", 7))
    assert finish(process)[0] == 0


def test_death_by_a_signal(stage: Stage) -> None:
    """Sent by the pod's caller."""
    command(stage, "echo ready; exec sleep 100")
    process = stage.start()
    with connected(stage) as peer:
        peer.about("run", "program", "squeue")
        assert peer.hear().one("data") == b"ready\n"
        peer.about("kill", "number", str(int(signal.SIGUSR1)))
        end = peer.hear()
        assert (end.verb, end.one("how"), end.number("number")) == ("ended", b"signal", signal.SIGUSR1)
        peer.end()
    assert finish(process)[0] == 0


def test_only_slurms_programs_run(stage: Stage) -> None:
    """penstockd allows no others either."""
    command(stage, "echo ran", name="evil")
    process = stage.start()
    with connected(stage) as peer:
        for number, program in enumerate(("evil", "../bin/sh", "/bin/sh", "sacctmgr")):
            peer.about("run", "program", program, key=f"1-{number}")
            printed, end = peer.output(f"1-{number}")
            assert (printed[1], end) == (b"", ("exit", relay.CANNOT_RUN))
            assert printed[2].startswith(b"penstock: cannot run ")
        peer.end()
    assert finish(process)[0] == 0


def test_script_of_sbatch(stage: Stage) -> None:
    """A file of its own name, in the given folder and umask, removed at the end."""
    command(stage, 'echo "$@"; cat "$2"; pwd; umask', name="sbatch")
    process = stage.start()
    (stage.folder / "work").mkdir()
    with connected(stage) as peer:
        fields = ("program", "sbatch", "word", "-n1", "script", "my job.sh", "script", b"echo \xff\n")
        place = ("folder", str(stage.folder / "work"), "umask", "0027")
        peer.about("run", *fields, "argument", "a b", *place)
        printed, _ = peer.output()
        peer.end()
    first, content, *rest = printed[1].split(b"\n")
    option, path = first.removesuffix(b" a b").split(b" ", 1)
    assert (option, path.endswith(b"/my job.sh"), content) == (b"-n1", True, b"echo \xff")
    assert rest == [bytes(stage.folder / "work"), b"0027", b""]
    assert not os.path.exists(os.path.dirname(path))  # noqa: PTH110, PTH120  # bytes
    assert finish(process)[0] == 0


def test_output_is_not_read_faster_than_it_is_taken(stage: Stage) -> None:
    """A command of 10 MB waits for the pod, whole and in order."""
    command(stage, "exec head -c 10000000 /dev/zero")
    process = stage.start()
    with connected(stage) as peer:
        peer.about("run", "program", "squeue")
        size = 0
        while size < relay.WINDOW:
            size += len(peer.hear().one("data"))
        peer.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            peer.hear()
        peer.sock.settimeout(60)
        peer.about("confirm", "stream", "1", "offset", str(size))
        while True:
            message = peer.hear()
            if message.verb == "ended":
                break
            assert message.number("offset") == size
            size += len(message.one("data"))
            peer.about("confirm", "stream", "1", "offset", str(size))
        assert size == 10_000_000
        peer.end()
    assert finish(process)[0] == 0


def test_commands_survive_penstockd(stage: Stage) -> None:
    """What was not confirmed is sent again when asked for, and no command runs twice."""
    waiting = f"while [ ! -e {stage.folder}/go ]; do sleep 0.01; done"
    waiting = f"while [ ! -e {stage.folder}/go ]; do sleep 0.01; done"
    command(stage, f"echo ran >>{stage.folder}/runs; echo one; {waiting}; echo two")
    process = stage.start()
    with connected(stage) as peer:
        peer.about("run", "program", "squeue")
        assert peer.hear().one("data") == b"one\n"
    with connected(stage) as peer:
        assert peer.request.all("command") == (KEY.encode(),)
        peer.about("run", "program", "squeue")
        peer.about("again")
        assert (message := peer.hear()).one("data") == b"one\n"
        assert message.number("offset") == 0
        peer.about("confirm", "stream", "1", "offset", "2")
        (stage.folder / "go").touch()
        assert (message := peer.hear()).one("data") == b"two\n"
        assert peer.hear().verb == "ended"
    with connected(stage) as peer:
        peer.about("again")
        message = peer.hear()
        assert (message.one("data"), message.number("offset")) == (b"e\ntwo\n", 2)
        assert peer.hear().verb == "ended"
        peer.about("forget")
        peer.end()
    assert finish(process)[0] == 0
    assert (stage.folder / "runs").read_text() == "ran\n"


def test_forgotten_command_is_killed(stage: Stage) -> None:
    """Nobody waits for it any more."""
    command(stage, f"echo $$ >{stage.folder}/pid; exec sleep 100")
    process = stage.start()
    with connected(stage) as peer:
        peer.about("run", "program", "squeue")
        deadline = time.monotonic() + 60
        while not (stage.folder / "pid").exists() or not (stage.folder / "pid").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        peer.about("forget")
        pid = int((stage.folder / "pid").read_text())
        while os.path.exists(f"/proc/{pid}"):  # noqa: PTH110
            assert time.monotonic() < deadline
            time.sleep(0.01)
        peer.end()
    assert finish(process)[0] == 0


def test_signals_arrive_between_frames(stage: Stage) -> None:
    """A signal for the job that comes while a command prints does not tear a frame."""
    command(stage, "exec head -c 3000000 /dev/zero")
    process = stage.start()
    with connected(stage) as peer:
        peer.sock.sendall(wire.pack("started"))
        peer.about("run", "program", "squeue")
        size, signals = 0, 0
        while size < 3_000_000:
            process.send_signal(signal.SIGUSR1)
            message = peer.hear()
            if message.verb == "signal":
                signals += 1
                peer.sock.sendall(wire.pack("delivered"))
            elif message.verb == "printed":
                size += len(message.one("data"))
                peer.about("confirm", "stream", "1", "offset", str(size))
        assert signals
        while peer.hear().verb != "ended":
            signals += 1
        peer.end()
    assert finish(process)[0] == 0
