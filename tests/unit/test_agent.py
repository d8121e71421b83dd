"""The agent in the pod, run by every shell that images have: nothing of it may depend on one of them."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from penstock.render import environment, pods

SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
Process = subprocess.Popen[bytes]


class Stage:
    """A folder as the job's Secret is mounted, and the agent in it."""

    def __init__(self, folder: Path, shell: list[str]) -> None:
        self.folder = folder
        self.shell = shell
        (folder / "agent.sh").write_bytes(pods.AGENT)
        (folder / "srun").write_bytes(pods.NO_SRUN)
        (folder / "srun").chmod(0o755)

    def start(self, script: str, *, path: str = "/usr/bin:/bin", **settings: str) -> Process:
        """Run a script of sh; settings are the agent's, by name."""
        (self.folder / "script").write_text(script)
        words = (b"/bin/sh", str(self.folder / "script").encode(), b"a b")
        (self.folder / "arguments").write_bytes(environment.set_line(words))
        pairs = [(b"COLOUR", b"it's blue"), (b"SLURM_JOB_ID", b"17"), (b"PATH", path.encode())]
        (self.folder / "environment").write_bytes(environment.export_lines(pairs))
        known = {"workdir": str(self.folder), "umask": "", "stdin": "/dev/null", "stdout": "", "stderr": ""}
        values = {f"penstock_{name}": value.encode() for name, value in (known | settings).items()}
        (self.folder / "settings").write_bytes(environment.assignments(values))
        argv = [*self.shell, str(self.folder / "agent.sh")]
        return subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"PATH": "/usr/bin:/bin"}
        )

    def run(self, script: str, *, path: str = "/usr/bin:/bin", **settings: str) -> tuple[int, str, str]:
        return finish(self.start(script, path=path, **settings))


def finish(process: Process) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=10)
    return process.returncode, out.decode(), err.decode()


@pytest.fixture(params=SHELLS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    shell = SHELLS[request.param]
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not here")
    return Stage(tmp_path, shell)


def test_arguments_environment_and_exit_code(stage: Stage) -> None:
    """All that the Secret holds reaches the script, and its code comes back."""
    assert stage.run('echo "[$1] $COLOUR"; exit 7\n') == (7, "[a b] it's blue\n", "")


@pytest.mark.parametrize("code", [0, 1, 126, 127, 128, 130, 137, 143, 200, 255])
def test_every_exit_code_comes_back(stage: Stage, code: int) -> None:
    """Numbers that look like signals included."""
    assert stage.run(f"exit {code}\n")[0] == code


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


def test_a_missing_interpreter_is_said(stage: Stage) -> None:
    """With a shell's exit code for it."""
    process = stage.start("true\n")
    finish(process)
    (stage.folder / "arguments").write_bytes(environment.set_line((b"/opt/none", b"x")))
    argv = [*stage.shell, str(stage.folder / "agent.sh")]
    result = subprocess.run(argv, capture_output=True, timeout=10, check=False, text=True)
    assert result.returncode == 127
    assert "the image has no /opt/none, which the script's first line asks for" in result.stderr


def test_srun_says_why_it_does_nothing(stage: Stage) -> None:
    """Where the image has none of its own."""
    code, out, err = stage.run("srun -n2 hostname\n", path="/nonexistent")
    assert (code, out) == (1, "")
    assert err == (
        "penstock: job steps (srun) do not run in pods yet; write the command without srun: -n2 hostname\n"
    )


@pytest.mark.parametrize("name", ["HUP", "USR1", "USR2", "ABRT", "WINCH"])
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
    if subprocess.run(["/usr/bin/env", "--default-signal=INT", "true"], check=False, timeout=5).returncode:
        pytest.skip("env cannot set signals back here")
    process = stage.start(f"trap 'echo got; exit 3' {name}\necho up\nwhile :; do sleep 0.05; done\n")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(getattr(signal, f"SIG{name}"))
    assert finish(process)[:2] == (3, "got\n")


def test_a_script_that_dies_of_a_signal(stage: Stage) -> None:
    """Outside a container there is nobody to tell, but the number is a shell's for it."""
    assert stage.run("kill -KILL $$\n")[0] == 128 + signal.SIGKILL


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


def test_other_ranks_hold_until_they_are_told(stage: Stage) -> None:
    """`hold` keeps the room and leaves on SIGTERM."""
    finish(stage.start("true\n"))
    argv = [*stage.shell, str(stage.folder / "agent.sh"), "hold"]
    process = subprocess.Popen(argv, start_new_session=True)
    try:
        time.sleep(0.2)
        assert process.poll() is None
        process.terminate()
        assert process.wait(timeout=5) == 0
    finally:
        process.kill()
        subprocess.run(
            ["/bin/kill", "-KILL", "--", f"-{process.pid}"], check=False, capture_output=True, timeout=5
        )
