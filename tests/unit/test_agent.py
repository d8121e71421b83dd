"""The agent in the pod, run by every shell that images have: it must depend on none of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from penstock.render import podenv
from tests.unit.agentstages import Stage, finish, stage

__all__ = ["stage"]  # pytest finds the fixture by its name


def test_arguments_environment_and_exit_code(stage: Stage) -> None:
    assert stage.run('echo "[$1] $COLOUR"; exit 7\n') == (7, "[a b] it's blue\n", "")


@pytest.mark.parametrize("code", [0, 1, 126, 127, 128, 130, 137, 143, 200, 255])
def test_every_exit_code_is_returned(stage: Stage, code: int) -> None:
    """Including those that look like signals; no signal is reported."""
    assert stage.run(f"exit {code}\n")[0] == code
    assert "signal" not in stage.last_words.read_text()


@pytest.mark.parametrize("words", ["[main] out of luck", "[1] out of luck", "out of luck", "Killed"])
@pytest.mark.parametrize("end", ["\\n", ""])
@pytest.mark.parametrize("code", [137, 200, 255])
def test_text_in_termination_log_is_not_a_signal(stage: Stage, words: str, end: str, code: int) -> None:
    """The script may write its termination message where the agent keeps its own notes."""
    script = f"printf '{words}{end}' >{stage.last_words}; exit {code}\n"
    assert stage.run(script)[0] == code
    assert "signal" not in stage.last_words.read_text()


def test_text_in_termination_log_does_not_hide_a_signal(stage: Stage) -> None:
    assert stage.run(f"echo '[1] fine 137' >{stage.last_words}; kill -9 $$\n")[0] == 137
    assert stage.last_words.read_text().startswith("signal\n")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_file_that_cannot_be_opened_is_reported(stage: Stage, stream: str) -> None:
    """In the termination log, because there is no output."""
    code, out, _ = stage.run("echo ran\n", **{stream: "/nonexistent/x"})
    assert (code, out) == (126, "")
    expected = "penstock: the output file /nonexistent/x cannot be opened in the container\n"
    assert stage.last_words.read_text() == expected


def test_hold_without_sleep_ends_with_a_reason(stage: Stage) -> None:
    """A busybox has its own sleep."""
    if stage.shell[0] == "busybox":
        pytest.skip("busybox finds its own sleep")
    (stage.folder / "settings").touch()
    argv = [str(shutil.which(stage.shell[0])), *stage.shell[1:], str(stage.folder / "agent.sh"), "hold"]
    done = subprocess.run(argv, env={"PATH": "/nonexistent"}, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (126, b"")
    assert stage.last_words.read_text().startswith("penstock: the image has no sleep")


def test_umask_and_input(stage: Stage) -> None:
    """As the submitter set them."""
    (stage.folder / "in put").write_text("from the file\n")
    found = stage.run("umask; cat\n", umask="0027", stdin=str(stage.folder / "in put"))
    assert found == (0, "0027\nfrom the file\n", "")


def test_missing_input_file_is_reported(stage: Stage) -> None:
    """The script does not run with empty input."""
    code, out, err = stage.run("echo ran\n", stdin="/nonexistent/in")
    assert (code, out) == (126, "")
    assert err == "penstock: the input file /nonexistent/in is not in the container\n"


def test_output_files(stage: Stage) -> None:
    """One file for both streams, opened for appending, or one each."""
    both, other = stage.folder / "both", stage.folder / "other"
    both.write_text("before\n")
    stage.run("echo out; echo err >&2\n", stdout=str(both), stderr=str(both))
    assert both.read_text() == "before\nout\nerr\n"
    stage.run("echo out; echo err >&2\n", stdout=str(both), stderr=str(other))
    assert (both.read_text(), other.read_text()) == ("before\nout\nerr\nout\n", "err\n")
    assert stage.run("echo out; echo err >&2\n", stdout=str(both)) == (0, "", "err\n")


def test_missing_working_directory_is_reported(stage: Stage) -> None:
    """The script runs in /tmp instead."""
    code, out, err = stage.run("pwd\n", workdir="/nonexistent/place")
    assert (code, out) == (0, "/tmp\n")  # noqa: S108  # the container's
    assert "the working directory /nonexistent/place is not in the container" in err


def test_working_directory_outside_shared_mounts_is_reported(stage: Stage) -> None:
    """The script starts in the replacement, and its output explains the consequence."""
    code, out, err = stage.run("pwd\n", workdir="/tmp", lost_workdir="/home/alice")  # noqa: S108
    assert (code, out) == (0, "/tmp\n")  # noqa: S108  # the container's
    words = "pods do not see the working directory /home/alice: the job runs in /tmp of its pod"
    assert err == f"penstock: {words}, and what it leaves there vanishes with it\n"


def test_output_folder_is_private(stage: Stage) -> None:
    """Mode 700 and in PENSTOCK_OUTPUT_DIR, whatever the submitter exported."""
    made = stage.folder / "out put"
    code, out, err = stage.run(
        'echo "$PENSTOCK_OUTPUT_DIR"; ls -ld "$PENSTOCK_OUTPUT_DIR"\n', output_dir=str(made)
    )
    assert (code, out.splitlines()[0], err) == (0, str(made), "")
    assert out.splitlines()[1].startswith("drwx------")
    assert stage.run('echo "[$PENSTOCK_OUTPUT_DIR]"\n') == (0, "[]\n", "")


def test_existing_output_folder_is_not_used(stage: Stage) -> None:
    """It would be somebody else's; the script runs without one, and the owner is told."""
    taken = stage.folder / "taken"
    taken.mkdir()
    code, out, err = stage.run('echo "[$PENSTOCK_OUTPUT_DIR]"\n', output_dir=str(taken))
    assert (code, out) == (0, "[]\n")
    assert "PENSTOCK_OUTPUT_DIR is not set" in err


OUTPUTS = """mkdir 'a b' c; echo 1 >'a b/x y.csv'; echo 2 >c/-n.csv; ln -s /etc/passwd c/l.csv
echo 3 >'d;e*.log'; echo 4 >-v.csv; mkdir tree; echo 5 >tree/f; echo no >other; exit 7
"""


def test_outputs_are_copied(stage: Stage) -> None:
    """Any names, whole folders, links as links; the exit code stays the script's."""
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


def test_missing_interpreter_is_reported(stage: Stage) -> None:
    """With a shell's exit code for it."""
    process = stage.start("true\n")
    finish(process)
    (stage.folder / "arguments").write_bytes(podenv.set_line((b"/opt/none", b"x")))
    argv = [*stage.shell, str(stage.folder / "agent.sh")]
    result = subprocess.run(argv, capture_output=True, timeout=60, check=False, text=True)
    assert result.returncode == 127
    assert "the image has no /opt/none, which the script's first line asks for" in result.stderr


def test_slurms_commands_come_first(stage: Stage) -> None:
    """Before those of the image, which would reach no Slurm."""
    code, out, _ = stage.run('echo "${PATH%%:*}"\n')
    assert (code, out) == (0, f"{stage.folder}\n")


def test_kubelets_variables_are_removed(stage: Stage) -> None:
    """The API server's address is removed, the user's own variables of similar names are kept."""
    service = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    service |= {"KUBERNETES_PORT_6443_TCP": "x", "KUBERNETES_PORT_6443_TCP_ADDR": "y"}
    code, out, _ = stage.run("/usr/bin/env\n", added=service, exported={"KUBERNETES_PORT": "mine"})
    found = [line for line in out.splitlines() if line.startswith("KUBERNETES_")]
    assert (code, found) == (0, ["KUBERNETES_PORT=mine"])


def test_other_ranks_hold_until_sigterm(stage: Stage) -> None:
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
