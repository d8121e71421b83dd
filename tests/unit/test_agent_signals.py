"""Signals to the agent in the pod, and how it reports the end of a script by one."""

from __future__ import annotations

import re
import signal
import subprocess
import time

import pytest

from penstock.render import secrets
from tests.unit.agentstages import Stage, finish, stage

__all__ = ["stage"]  # pytest finds the fixture by its name


@pytest.mark.parametrize("name", ["HUP", "USR1", "USR2", "ABRT", "ALRM", "WINCH"])
def test_signal_reaches_the_scripts_trap(stage: Stage, name: str) -> None:
    """The agent forwards it and waits until the script ends."""
    process = stage.start(f"trap 'echo got; exit 3' {name}\necho up\nwhile :; do sleep 0.05; done\n")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(getattr(signal, f"SIG{name}"))
    assert finish(process)[:2] == (3, "got\n")


@pytest.mark.parametrize("name", ["INT", "QUIT"])
def test_script_can_trap_int_and_quit(stage: Stage, name: str) -> None:
    """A background process ignores these signals unless GNU env or bash undoes that."""
    if subprocess.run(["/usr/bin/env", "--default-signal=INT", "true"], check=False, timeout=60).returncode:
        pytest.skip("env cannot set signals back here")
    process = stage.start(f"trap 'echo got; exit 3' {name}\necho up\nwhile :; do sleep 0.05; done\n")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(getattr(signal, f"SIG{name}"))
    assert finish(process)[:2] == (3, "got\n")


SIGNALS = [number for number in range(1, 32) if signal.Signals(number).name not in (
    "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGWINCH"
)]  # fmt: skip
"""Those that end a process."""
UNANNOUNCED = (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)
"""Bash prints nothing about these; it must be waiting already when the script dies."""
DIE = (
    "import os, signal, time\ntime.sleep({1})\nif {0} != 9: signal.signal({0}, signal.SIG_DFL)\n"
    "os.kill(os.getpid(), {0})\n"
)


@pytest.mark.parametrize("readable", [True, False], ids=["told", "kept-in-tmp"])
def test_script_that_dies_of_a_signal(stage: Stage, readable: bool) -> None:
    """Every signal is distinguished from the exit code of the same number."""
    if not readable:
        stage.last_words.unlink()
    for number in SIGNALS if readable else (2, 9):
        script = (
            "ulimit -c 0; exec python3 - <<'EOF'\n"
            + DIE.format(number, 0.5 * (number in UNANNOUNCED))
            + "EOF\n"
        )
        assert stage.run(script)[0] == 128 + number
        if readable:
            assert stage.last_words.read_text().startswith("signal\n"), number
        assert stage.run(f"exit {128 + number}\n")[0] == 128 + number
        if readable:
            assert not stage.last_words.read_text().startswith("signal"), number


@pytest.mark.parametrize(("script", "code"), [("sleep 0.5; kill $$", 143), ("exit 3", 3), ("exit 143", 143)])
def test_traps_may_interrupt_wait(stage: Stage, script: str, code: int) -> None:
    """As in bash, which learns of the script's end while it waits for it: 128 + SIGTTIN, 128 + SIGCHLD,
    then the status.
    """
    answers = (
        "wait() {\n    case $times_asked in\n    1) times_asked=2; return 145 ;;\n"
        '    2) times_asked=3; return "$truth" ;;\n    3) return 127 ;;\n    esac\n'
        '    truth=145 times_asked=1\n    while [ "$truth" = 145 ]; do command wait "$@"; truth=$?; done\n'
        "    return 149\n}\ntimes_asked=0\n"
    )
    agent = stage.folder / "agent.sh"
    agent.write_text(
        agent.read_text().replace("\nwhile :; do\n    wait", f"\n{answers}while :; do\n    wait")
    )
    assert "times_asked" in agent.read_text()
    assert stage.run(f"{script}\n")[0] == code
    assert stage.last_words.read_text().startswith("signal\n") == ("kill" in script)


def test_users_variables_do_not_disturb_the_agent(stage: Stage) -> None:
    """The script gets whatever the user exports."""
    words = secrets.AGENT.decode()
    names = {*re.findall(r"\b([a-z][a-z_]*)=", words), *re.findall(r"\bfor ([a-z_]+)", words)}
    exported = {name: "mine" for name in names if not name.startswith("penstock_")} | {"IFS": "/e"}
    shown = "".join(f'printf "%s " "${name}"; ' for name in exported if name != "IFS")
    code, out, err = stage.run(f"{shown}exit 9\n", exported=exported)
    assert (code, out, err) == (9, "mine " * (len(exported) - 1), "")


def test_sigttin_is_sigterm_for_the_script_alone(stage: Stage) -> None:
    """Its children do not get it; without a trap the script dies of it."""
    script = "trap 'echo it' TERM\nsh -c 'echo up; sleep 0.3; echo child'\necho on\n"
    process = stage.start(script)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGTTIN)
    assert finish(process) == (0, "child\nit\non\n", "")
    process = stage.start("echo up\nsleep 1\necho on\n")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGTTIN)
    assert finish(process) == (128 + signal.SIGTERM, "", "")
    assert stage.last_words.read_text().startswith("signal\n")


@pytest.mark.parametrize("place", [b"\nbegin <", b'\n[ -z "${BASH_VERSION:-}" ] || note_ending'])
@pytest.mark.parametrize("name", ["TERM", "TTIN", "USR1"])
def test_signal_around_the_fork_is_not_lost(stage: Stage, name: str, place: bytes) -> None:
    """Just before and just after: the child would drop it while it still has the agent's traps."""
    agent = stage.folder / "agent.sh"
    before, found, after = agent.read_bytes().partition(place)
    agent.write_bytes(before + f"\nkill -{name} $$".encode() + found + after)
    ended = signal.SIGUSR1 if name == "USR1" else signal.SIGTERM
    for _ in range(5):
        assert stage.run("exec sleep 2\n") == (128 + ended, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGTTIN])
def test_signal_before_the_child_is_known(stage: Stage, number: signal.Signals) -> None:
    """The script runs, but the agent has not got its pid yet: the signal is forwarded then."""
    agent = stage.folder / "agent.sh"
    text, slowed = agent.read_bytes(), b"\n/bin/sleep 0.5\nchild=$!\n"
    assert b"\nchild=$!\n" in text
    agent.write_bytes(text.replace(b"\nchild=$!\n", slowed))
    process = stage.start("echo up\nsleep 2\necho on\n")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(number)
    assert finish(process) == (128 + signal.SIGTERM, "", "")


def test_two_signals_are_both_forwarded(stage: Stage) -> None:
    process = stage.start("trap 'n=x$n; echo $n' USR1\necho up\nuntil [ \"$n\" = xx ]; do sleep 0.05; done\n")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == b"x\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    assert finish(process)[:2] == (0, "xx\n")
