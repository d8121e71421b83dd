"""The agent in the pod, run by every shell that images have: nothing of it may depend on one of them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from penstock.render import podenv, secrets

SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
Process = subprocess.Popen[bytes]


class Stage:
    """A folder as the job's Secret is mounted, and the agent in it."""

    def __init__(self, folder: Path, shell: list[str]) -> None:
        self.folder = folder
        self.shell = shell
        self.started: list[Process] = []
        self.last_words = folder / "termination-log"
        self.last_words.touch()
        agent = secrets.AGENT.replace(b"/dev/termination-log", bytes(self.last_words))
        agent = agent.replace(b"/tmp/.penstock-", bytes(folder / "penstock-"))
        (folder / "agent.sh").write_bytes(agent)
        (folder / "srun").write_bytes(secrets.NO_SRUN)
        (folder / "srun").chmod(0o755)

    def start(
        self,
        script: str,
        *,
        path: str = os.environ["PATH"],
        start_path: str = os.environ["PATH"],
        added: Mapping[str, str] = MappingProxyType({}),
        exported: Mapping[str, str] = MappingProxyType({}),
        **settings: str,
    ) -> Process:
        """Run a script of sh; settings are the agent's, by name."""
        (self.folder / "script").write_text(script)
        words = (b"/bin/sh", str(self.folder / "script").encode(), b"a b")
        (self.folder / "arguments").write_bytes(podenv.set_line(words))
        pairs = [(b"COLOUR", b"it's blue"), (b"SLURM_JOB_ID", b"17"), (b"PATH", path.encode())]
        pairs += [(name.encode(), value.encode()) for name, value in exported.items()]
        (self.folder / "environment").write_bytes(podenv.export_lines(pairs))
        known = {"workdir": str(self.folder), "umask": "", "stdin": "/dev/null"}
        known |= {"stdout": "", "stderr": "", "kept": "", "output_dir": "", "outputs": ""}
        values = {f"penstock_{name}": value.encode() for name, value in (known | settings).items()}
        (self.folder / "settings").write_bytes(podenv.assignments(values))
        argv = [*self.shell, str(self.folder / "agent.sh")]
        env = {"PATH": start_path, **added}
        program = shutil.which(argv[0]) or argv[0]
        pipe = subprocess.PIPE
        started = subprocess.Popen([program, *argv[1:]], stdout=pipe, stderr=pipe, env=env, process_group=0)
        self.started.append(started)
        return started

    def clear(self) -> None:
        """End what a test that failed left running, the script's children with it."""
        for process in self.started:
            with process, contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def run(self, script: str, **how: Any) -> tuple[int, str, str]:
        return finish(self.start(script, **how))


def finish(process: Process) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out.decode(), err.decode()


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.needs(SHELLS[name][0])) for name in SHELLS])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    shell = SHELLS[request.param]
    made = Stage(tmp_path, shell)
    yield made
    made.clear()


def test_arguments_environment_and_exit_code(stage: Stage) -> None:
    """All that the Secret holds reaches the script, and its code comes back."""
    assert stage.run('echo "[$1] $COLOUR"; exit 7\n') == (7, "[a b] it's blue\n", "")


@pytest.mark.parametrize("code", [0, 1, 126, 127, 128, 130, 137, 143, 200, 255])
def test_every_exit_code_comes_back(stage: Stage, code: int) -> None:
    """Numbers that look like signals included; nothing is said of a signal."""
    assert stage.run(f"exit {code}\n")[0] == code
    assert "signal" not in stage.last_words.read_text()


@pytest.mark.parametrize("words", ["[main] out of luck", "[1] out of luck", "out of luck", "Killed"])
@pytest.mark.parametrize("end", ["\\n", ""])
@pytest.mark.parametrize("code", [137, 200, 255])
def test_a_scripts_own_last_words_are_no_signal(stage: Stage, words: str, end: str, code: int) -> None:
    """It may write its termination message where the agent keeps what it must know."""
    script = f"printf '{words}{end}' >{stage.last_words}; exit {code}\n"
    assert stage.run(script)[0] == code
    assert "signal" not in stage.last_words.read_text()


def test_a_script_that_dies_with_words_of_its_own(stage: Stage) -> None:
    """They do not hide the signal either."""
    assert stage.run(f"echo '[1] fine 137' >{stage.last_words}; kill -9 $$\n")[0] == 137
    assert stage.last_words.read_text().startswith("signal\n")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_an_output_file_that_cannot_be_opened_is_said(stage: Stage, stream: str) -> None:
    """Where penstockd finds it: there is no output to say it in."""
    code, out, _ = stage.run("echo ran\n", **{stream: "/nonexistent/x"})
    assert (code, out) == (126, "")
    expected = "penstock: the output file /nonexistent/x cannot be opened in the container\n"
    assert stage.last_words.read_text() == expected


def test_a_rank_that_cannot_sleep_does_not_spin(stage: Stage) -> None:
    """It says why and ends; a busybox has a sleep of its own."""
    if stage.shell[0] == "busybox":
        pytest.skip("busybox finds its own sleep")
    (stage.folder / "settings").touch()
    argv = [str(shutil.which(stage.shell[0])), *stage.shell[1:], str(stage.folder / "agent.sh"), "hold"]
    done = subprocess.run(argv, env={"PATH": "/nonexistent"}, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (126, b"")
    assert stage.last_words.read_text().startswith("penstock: the image has no sleep")


def test_umask_and_input(stage: Stage) -> None:
    """As the submitter had them."""
    (stage.folder / "in put").write_text("from the file\n")
    found = stage.run("umask; cat\n", umask="0027", stdin=str(stage.folder / "in put"))
    assert found == (0, "0027\nfrom the file\n", "")


def test_a_missing_input_is_said(stage: Stage) -> None:
    """Rather than run with nothing to read."""
    code, out, err = stage.run("echo ran\n", stdin="/nonexistent/in")
    assert (code, out) == (126, "")
    assert err == "penstock: the input file /nonexistent/in is not in the container\n"


def test_output_files(stage: Stage) -> None:
    """One for both, appended to, or one each."""
    both, other = stage.folder / "both", stage.folder / "other"
    both.write_text("before\n")
    stage.run("echo out; echo err >&2\n", stdout=str(both), stderr=str(both))
    assert both.read_text() == "before\nout\nerr\n"
    stage.run("echo out; echo err >&2\n", stdout=str(both), stderr=str(other))
    assert (both.read_text(), other.read_text()) == ("before\nout\nerr\nout\n", "err\n")
    assert stage.run("echo out; echo err >&2\n", stdout=str(both)) == (0, "", "err\n")


def test_a_missing_working_directory_is_said(stage: Stage) -> None:
    """The script runs in /tmp instead."""
    code, out, err = stage.run("pwd\n", workdir="/nonexistent/place")
    assert (code, out) == (0, "/tmp\n")  # noqa: S108  # the container's
    assert "the working directory /nonexistent/place is not in the container" in err


def test_a_working_directory_that_pods_do_not_see_is_said(stage: Stage) -> None:
    """The script starts where it was told to, and its output says what that means."""
    code, out, err = stage.run("pwd\n", workdir="/tmp", lost_workdir="/home/alice")  # noqa: S108
    assert (code, out) == (0, "/tmp\n")  # noqa: S108  # the container's
    words = "pods do not see the working directory /home/alice: the job runs in /tmp of its pod"
    assert err == f"penstock: {words}, and what it leaves there vanishes with it\n"


def test_the_folder_for_outputs_is_made_for_the_job_alone(stage: Stage) -> None:
    """Mode 700, named in the environment, whatever the submitter exported."""
    made = stage.folder / "out put"
    code, out, err = stage.run(
        'echo "$PENSTOCK_OUTPUT_DIR"; ls -ld "$PENSTOCK_OUTPUT_DIR"\n', output_dir=str(made)
    )
    assert (code, out.splitlines()[0], err) == (0, str(made), "")
    assert out.splitlines()[1].startswith("drwx------")
    assert stage.run('echo "[$PENSTOCK_OUTPUT_DIR]"\n') == (0, "[]\n", "")


def test_a_folder_that_is_there_already_is_not_used(stage: Stage) -> None:
    """It would be somebody else's; the script runs without, and its owner is told."""
    taken = stage.folder / "taken"
    taken.mkdir()
    code, out, err = stage.run('echo "[$PENSTOCK_OUTPUT_DIR]"\n', output_dir=str(taken))
    assert (code, out) == (0, "[]\n")
    assert "PENSTOCK_OUTPUT_DIR is not set" in err


OUTPUTS = """mkdir 'a b' c; echo 1 >'a b/x y.csv'; echo 2 >c/-n.csv; ln -s /etc/passwd c/l.csv
echo 3 >'d;e*.log'; echo 4 >-v.csv; mkdir tree; echo 5 >tree/f; echo no >other; exit 7
"""


def test_outputs_of_the_container_are_copied_out(stage: Stage) -> None:
    """Names of every kind, folders whole, links as links, and the exit code stays the script's."""
    made, work = stage.folder / "made", stage.folder / "work"
    work.mkdir()
    patterns = "a b/*.csv\nc/*\n*.log\n*.csv\ntree\nnothing/*"
    code, _, err = stage.run(OUTPUTS, output_dir=str(made), outputs=patterns, workdir=str(work))
    assert (code, err) == (7, "")
    found = {
        str(path.relative_to(made)) for path in made.rglob("*") if not path.is_dir() or path.is_symlink()
    }
    names = {"a b/x y.csv", "c/-n.csv", "c/l.csv", "d;e*.log", "-v.csv", "tree/f"}
    assert found == names | {".penstock-copied"}
    assert (made / "c" / "l.csv").is_symlink()


def test_a_missing_interpreter_is_said(stage: Stage) -> None:
    """With a shell's exit code for it."""
    process = stage.start("true\n")
    finish(process)
    (stage.folder / "arguments").write_bytes(podenv.set_line((b"/opt/none", b"x")))
    argv = [*stage.shell, str(stage.folder / "agent.sh")]
    result = subprocess.run(argv, capture_output=True, timeout=60, check=False, text=True)
    assert result.returncode == 127
    assert "the image has no /opt/none, which the script's first line asks for" in result.stderr


def test_srun_says_why_it_does_nothing(stage: Stage) -> None:
    """Where the image has none of its own."""
    code, out, err = stage.run("srun -n2 hostname\n", path="/nonexistent")
    assert (code, out) == (1, "")
    assert err == (
        "penstock: job steps (srun) do not run in pods yet; write the command without srun: -n2 hostname\n"
    )


@pytest.mark.parametrize("name", ["HUP", "USR1", "USR2", "ABRT", "ALRM", "WINCH"])
def test_a_signal_reaches_the_scripts_trap(stage: Stage, name: str) -> None:
    """The agent passes it on and waits on for the script's own end."""
    process = stage.start(f"trap 'echo got; exit 3' {name}\necho up\nwhile :; do sleep 0.05; done\n")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(getattr(signal, f"SIG{name}"))
    assert finish(process)[:2] == (3, "got\n")


@pytest.mark.parametrize("name", ["INT", "QUIT"])
def test_the_scripts_own_traps_of_interrupts_work(stage: Stage, name: str) -> None:
    """A background process ignores these for good unless that is undone, which needs GNU env or bash."""
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
"""Those that a process dies of."""
UNANNOUNCED = (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)
"""Of these bash says nothing by itself; it must have begun to wait when the script dies."""
DIE = (
    "import os, signal, time\ntime.sleep({1})\nif {0} != 9: signal.signal({0}, signal.SIG_DFL)\n"
    "os.kill(os.getpid(), {0})\n"
)


@pytest.mark.parametrize("readable", [True, False], ids=["told", "kept-in-tmp"])
def test_a_script_that_dies_of_a_signal(stage: Stage, readable: bool) -> None:
    """Every signal is told from the exit code of the same number."""
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
def test_traps_may_interrupt_every_question_but_the_last(stage: Stage, script: str, code: int) -> None:
    """As in bash, which hears of the script's end while it waits for it: 128 + SIGTTIN, 128 + SIGCHLD, the
    truth, and then it has forgotten.
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


def test_the_agents_own_variables_are_not_the_users(stage: Stage) -> None:
    """Whatever the user exports arrives as it is, and the agent goes on in peace."""
    words = secrets.AGENT.decode()
    names = {*re.findall(r"\b([a-z][a-z_]*)=", words), *re.findall(r"\bfor ([a-z_]+)", words)}
    exported = {name: "mine" for name in names if not name.startswith("penstock_")} | {"IFS": "/e"}
    shown = "".join(f'printf "%s " "${name}"; ' for name in exported if name != "IFS")
    code, out, err = stage.run(f"{shown}exit 9\n", exported=exported)
    assert (code, out, err) == (9, "mine " * (len(exported) - 1), "")


def test_a_sigterm_may_be_for_the_script_alone(stage: Stage) -> None:
    """Its children do not hear it; without a trap the script dies of it."""
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
def test_a_signal_may_come_before_the_script_is_itself(stage: Stage, name: str, place: bytes) -> None:
    """Just before and just after the fork: the child would drop it as long as it has the agent's traps."""
    agent = stage.folder / "agent.sh"
    before, found, after = agent.read_bytes().partition(place)
    agent.write_bytes(before + f"\nkill -{name} $$".encode() + found + after)
    ended = signal.SIGUSR1 if name == "USR1" else signal.SIGTERM
    for _ in range(5):
        assert stage.run("exec sleep 2\n") == (128 + ended, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGTTIN])
def test_the_end_may_come_as_the_script_begins(stage: Stage, number: signal.Signals) -> None:
    """The script is there and the agent does not know its number yet: the signal is passed on then."""
    agent = stage.folder / "agent.sh"
    text, slowed = agent.read_bytes(), b"\n/bin/sleep 0.5\nchild=$!\n"
    assert b"\nchild=$!\n" in text
    agent.write_bytes(text.replace(b"\nchild=$!\n", slowed))
    process = stage.start("echo up\nsleep 2\necho on\n")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(number)
    assert finish(process) == (128 + signal.SIGTERM, "", "")


def test_two_signals_are_two(stage: Stage) -> None:
    """After the first the agent waits on."""
    process = stage.start("trap 'n=x$n; echo $n' USR1\necho up\nuntil [ \"$n\" = xx ]; do sleep 0.05; done\n")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == b"x\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    assert finish(process)[:2] == (0, "xx\n")


@pytest.fixture
def kept(stage: Stage) -> Iterator[dict[str, Any]]:
    """Settings of an agent whose output is fetched; none of its processes stays."""
    folder = stage.folder / "kept"
    folder.mkdir()
    yield {"kept": str(folder), "stdout": f"{folder}/1", "stderr": f"{folder}/2"}
    (folder / "collected").write_bytes(b"")


def collect(stage: Stage, stream: int, offset: int = 0) -> Process:
    """What penstockd runs in the container."""
    argv = [*stage.shell, str(stage.folder / "agent.sh"), "collect", str(stream), str(offset)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_kept_output_is_fetched_whole_before_the_agent_ends(stage: Stage, kept: dict[str, Any]) -> None:
    """Both streams, all bytes; the exit code comes when somebody has said that they are out."""
    agent = stage.start("printf 'a\\000b'; echo err >&2; exit 3\n", **kept)
    assert finish(collect(stage, 1)) == (0, "a\0b", "")
    assert finish(collect(stage, 2)) == (0, "err\n", "")
    assert agent.poll() is None
    (Path(kept["kept"]) / "collected").write_bytes(b"")
    assert finish(agent)[0] == 3


def test_fetching_goes_on_from_an_offset_while_the_script_runs(stage: Stage, kept: dict[str, Any]) -> None:
    """A second collector gets the rest, and the first one, which nobody hears any more, ends."""
    go = stage.folder / "go"
    agent = stage.start(f"echo first; until [ -e {go} ]; do sleep 0.05; done; echo second\n", **kept)
    one = collect(stage, 1)
    assert one.stdout is not None
    assert one.stdout.readline() == b"first\n"
    other = collect(stage, 1, len("first\n"))
    assert finish(one) == (1, "", "")
    go.touch()
    assert finish(other) == (0, "second\n", "")
    (Path(kept["kept"]) / "collected").write_bytes(b"")
    assert finish(agent)[0] == 0


def test_a_collector_survives_the_end_of_all_others(stage: Stage, kept: dict[str, Any]) -> None:
    """SIGTERM to every process of the job is not for the one who fetches its last words."""
    agent = stage.start("trap 'echo bye; exit 5' TERM\necho up\nwhile :; do sleep 0.05; done\n", **kept)
    collector = collect(stage, 1)
    assert collector.stdout is not None
    assert collector.stdout.readline() == b"up\n"
    collector.terminate()
    agent.terminate()
    assert finish(collector) == (0, "bye\n", "")
    (Path(kept["kept"]) / "collected").write_bytes(b"")
    assert finish(agent)[0] == 5


def test_a_pod_that_is_removed_does_not_wait_to_be_fetched(stage: Stage, kept: dict[str, Any]) -> None:
    """SIGTERM once the script has ended: nobody will come."""
    agent = stage.start("exit 4\n", **kept)
    begun, ended = (Path(kept["kept"]) / name for name in ("begun", "ended"))
    deadline = time.monotonic() + 60
    while not begun.exists() or ended.stat().st_size:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    agent.terminate()
    assert finish(agent)[0] == 4


def test_an_end_on_a_full_disk_is_an_end(stage: Stage, kept: dict[str, Any]) -> None:
    """Nothing new has to be made for it, by nobody: files that are there can be emptied in any case."""
    folder = Path(kept["kept"])
    for stream in (1, 2):
        (folder / f"collector.{stream}").mkdir()  # which cannot be written
    agent = stage.start(f"ls {folder}; exit 3\n", **kept)
    code, names, _ = finish(collect(stage, 1))
    assert (code, finish(collect(stage, 2))[0]) == (0, 0)
    (folder / "collected").write_bytes(b"")
    assert finish(agent)[0] == 3
    assert {path.name for path in folder.iterdir()} == set(names.split())


def test_a_disk_that_is_full_from_the_beginning_is_said(stage: Stage, kept: dict[str, Any]) -> None:
    """In words, and at once: the job would not end otherwise."""
    (Path(kept["kept"]) / "collected").mkdir()  # which cannot be written
    assert finish(stage.start("echo ran\n", **kept)) == (126, "", "")
    assert stage.last_words.read_text() == "penstock: the node's disk has no room for the job's output\n"
    (Path(kept["kept"]) / "collected").rmdir()


def test_an_image_that_cannot_be_read_from_is_said(stage: Stage, kept: dict[str, Any]) -> None:
    """Output that is fetched needs cat, tail and sleep; where one is missing the job does not start."""
    if stage.shell[0] == "busybox":
        pytest.skip("busybox brings them itself")
    process = stage.start("echo ran\n", start_path="/nonexistent", **kept)
    expected = "penstock: the image has no cat, so output can only go to the shared folders\n"
    assert finish(process) == (126, "", "")
    assert stage.last_words.read_text() == expected
    assert not Path(kept["stdout"]).exists()


def test_what_a_kubelet_adds_is_not_the_jobs(stage: Stage) -> None:
    """The address of the API server is gone, the user's own variable of such a name is not."""
    service = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    service |= {"KUBERNETES_PORT_6443_TCP": "x", "KUBERNETES_PORT_6443_TCP_ADDR": "y"}
    code, out, _ = stage.run("/usr/bin/env\n", added=service, exported={"KUBERNETES_PORT": "mine"})
    found = [line for line in out.splitlines() if line.startswith("KUBERNETES_")]
    assert (code, found) == (0, ["KUBERNETES_PORT=mine"])


def test_other_ranks_hold_until_they_are_told(stage: Stage) -> None:
    """`hold` keeps the room and leaves on SIGTERM."""
    finish(stage.start("true\n"))
    argv = [*stage.shell, str(stage.folder / "agent.sh"), "hold"]
    process = subprocess.Popen(argv, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text():
            assert time.monotonic() < deadline  # it waits for a child, behind its trap
            time.sleep(0.02)
        assert process.poll() is None
        process.terminate()
        assert process.wait(timeout=60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
