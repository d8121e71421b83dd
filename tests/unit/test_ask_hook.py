"""PrologSlurmctld, Epilog and TaskProlog as Slurm runs them; the test plays penstockd and slurmctld."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from penstock.bridge import epilogs
from penstock.hooks import wire
from penstock.render import includes
from tests.unit import hookstages
from tests.unit.hookstages import Stage, finish, stage

__all__ = ["stage"]  # pytest finds the fixture by its name

pytestmark = hookstages.NEEDS_PYTHON


@pytest.mark.parametrize("name", ["penstock-prolog", "penstock-epilog"])
def test_other_partitions_are_not_asked_about(stage: Stage, name: str) -> None:
    """The hook exits before it connects."""
    process = stage.hook(name, SLURM_JOB_PARTITION="host", SLURM_JOB_ID="1")
    assert process.wait(timeout=60) == 0
    process.communicate()
    stage.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        stage.socket.accept()


def keep_environment(stage: Stage, job: int, *entries: bytes, count: int | None = None) -> None:
    """Write the environment file as slurmctld does."""
    folder = stage.folder / "state" / f"hash.{job % 10}" / f"job.{job}"
    folder.mkdir(parents=True)
    size = (len(entries) if count is None else count).to_bytes(4, sys.byteorder)
    (folder / "environment").write_bytes(size + b"".join(entry + b"\0" for entry in entries))


HARMLESS = (b"PATH=/bin", b"LD_PRELOAD=", b"PENSTOCK_GIVEN_LD_PRELOAD=/x.so", b"SLURM_GET_USER_ENV=0")


@pytest.mark.parametrize(
    ("entries", "armed"),
    [
        (HARMLESS, ()),
        ((b"LD_RUN_PATH=/opt/lib", b"LD_=x", b"NO_EQUALS", b"X=LD_PRELOAD=/x.so", b""), ()),
        ((*HARMLESS, b"LD_PRELOAD=/x.so"), (b"LD_PRELOAD",)),
        ((b"LD_PRELOAD=/x.so", *HARMLESS), (b"LD_PRELOAD",)),
        ((*HARMLESS, b"SLURM_GET_USER_ENV=1", b"LOCPATH=/x"), (b"LOCPATH", b"SLURM_GET_USER_ENV")),
    ],
)
def test_prolog_reports_variables_that_run_code_on_the_node(
    stage: Stage, entries: tuple[bytes, ...], armed: tuple[bytes, ...]
) -> None:
    """Also when job_submit.lua has neutralized the first of two equal names, and for tasks of an array."""
    keep_environment(stage, 15, *entries)
    process = stage.hook(
        "penstock-prolog", SLURM_JOB_PARTITION="gpu", SLURM_JOB_ID="17", SLURM_ARRAY_JOB_ID="15"
    )
    with stage.accept() as (peer, message):
        assert (message.number("job"), message.all("armed"), message.all("unread")) == (17, armed, ())
        peer.sendall(wire.pack("no"))
    finish(process)


@pytest.mark.parametrize(
    ("count", "words"),
    [(None, b"No such file"), (4, b"not a list of variables"), (6, b"not a list of variables")],
)
def test_prolog_reports_an_unreadable_environment(stage: Stage, count: int | None, words: bytes) -> None:
    """A missing or malformed file is not taken for harmless."""
    if count is not None:
        keep_environment(stage, 17, *HARMLESS, b"A=b", count=count)
    process = stage.hook("penstock-prolog", SLURM_JOB_PARTITION="gpu", SLURM_JOB_ID="17")
    with stage.accept() as (peer, message):
        assert b"state/hash.7/job.17/environment: " in message.one("unread")
        assert words in message.one("unread")
        peer.sendall(wire.pack("no"))
    finish(process)


@pytest.mark.parametrize(("word", "code"), [("yes", 0), ("no", 1)])
def test_prolog_exit_code(stage: Stage, word: str, code: int) -> None:
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
    """`wait` is not a final answer."""
    process = stage.hook(
        "penstock-epilog", SLURM_JOB_PARTITION="gpu", SLURM_JOB_ID="17", SLURMD_NODENAME="n1"
    )
    for word in ("wait", "gone"):
        with stage.accept() as (peer, message):
            assert (message.verb, message.number("job"), message.one("node")) == ("release", 17, b"n1")
            peer.sendall(wire.pack(word))
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_epilog_without_an_answer_fails(stage: Stage) -> None:
    """Slurm then drains the node."""
    stage.install(release_timeout=2)
    stage.socket.close()
    process = stage.hook(
        "penstock-epilog", SLURM_JOB_PARTITION="gpu", SLURM_JOB_ID="17", SLURMD_NODENAME="n1"
    )
    process.communicate(timeout=60)
    assert process.returncode == 1


def test_epilog_keeps_its_deadline(stage: Stage) -> None:
    """If penstockd reads the request but never answers: Slurm's own limit must not be reached."""
    stage.install(release_timeout=1)
    began = time.monotonic()
    process = stage.hook(
        "penstock-epilog", SLURM_JOB_PARTITION="gpu", SLURM_JOB_ID="17", SLURMD_NODENAME="n1"
    )
    with stage.accept() as (_, release), stage.accept() as (peer, abandon):
        assert (release.verb, abandon.verb) == ("release", "abandon")
        assert time.monotonic() - began < 10  # ATTEMPT_TIMEOUT is 30
        peer.sendall(wire.pack("drained"))
    assert finish(process)[0] == 0


def test_epilog_asks_penstockd_to_drain(stage: Stage) -> None:
    """At its deadline; if penstockd has drained the node the Epilog exits 0."""
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


def notes(stage: Stage) -> list[str]:
    """Names of the notes next to penstockd's socket."""
    return sorted(path.name for path in stage.folder.glob("epilog:*"))


EPILOG = {"SLURM_JOB_ID": "17", "SLURMD_NODENAME": "n1"}


def test_epilog_removes_its_note(stage: Stage) -> None:
    """While it runs it has a note, in place of an older one."""
    (stage.folder / "epilog:n1:17:ours").symlink_to("/nowhere")
    process = stage.hook("penstock-epilog", SLURM_JOB_PARTITION="gpu", **EPILOG)
    with stage.accept() as (peer, _):
        (note,) = epilogs.Notes(stage.folder).read()
        assert (note.node, note.job_id, note.is_ours, note.is_running) == ("n1", 17, True, True)
        peer.sendall(wire.pack("gone"))
    assert finish(process)[0] == 0
    assert notes(stage) == []


def test_killed_epilog_leaves_its_note(stage: Stage) -> None:
    """From it penstockd, which is not root, knows whose Epilog the node was drained for."""
    before = os.umask(0o077)
    try:
        process = stage.hook("penstock-epilog", SLURM_JOB_PARTITION="gpu", **EPILOG)
    finally:
        os.umask(before)
    with stage.accept():
        process.kill()
        process.communicate(timeout=60)
    assert (stage.folder / "epilog:n1:17:ours").stat().st_mode & 0o777 == 0o644
    (note,) = epilogs.Notes(stage.folder).read()
    assert (note.is_ours, note.is_running) == (True, False)


def test_failed_epilog_leaves_its_note(stage: Stage) -> None:
    """penstockd was away all the time."""
    stage.install(release_timeout=1)
    stage.socket.close()
    process = stage.hook("penstock-epilog", SLURM_JOB_PARTITION="gpu", **EPILOG)
    assert finish(process)[0] == 1
    assert notes(stage) == ["epilog:n1:17:ours"]


def test_epilog_that_cannot_write_a_note_releases(stage: Stage) -> None:
    """Only penstockd would not resume the node after a crash."""
    (stage.folder / "epilog:n1:17:ours").mkdir()
    process = stage.hook("penstock-epilog", SLURM_JOB_PARTITION="gpu", **EPILOG)
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("gone"))
    code, _, said = finish(process)
    assert (code, said) == (
        0,
        f"penstock: cannot write {stage.folder}/epilog:n1:17:ours: File exists\n".encode(),
    )


def chain(stage: Stage, site: str) -> str:
    """Install the Epilog after a site's own with these lines; returns the chain's name."""
    (stage.folder / "site-epilog").write_text(f"#!/bin/sh\n{site}\n")
    (stage.folder / "site-epilog").chmod(0o755)
    own, theirs = str(stage.folder / "penstock-epilog"), str(stage.folder / "site-*")
    (stage.folder / "chain").write_text(includes.render_chain("Epilog", own=own, site=theirs))
    (stage.folder / "chain").chmod(0o755)
    return "chain"


@pytest.mark.parametrize("partition", ["gpu", "host"])
def test_failure_of_the_sites_epilog_is_noted(stage: Stage, partition: str) -> None:
    """Slurm sees the failure, and pods are waited for all the same; a drain by penstockd would hide it."""
    stage.install(release_timeout=0)
    process = stage.hook(chain(stage, "exit 3"), SLURM_JOB_PARTITION=partition, **EPILOG)
    if partition == "gpu":
        with stage.accept() as (_, message):
            assert message.verb == "release"
    assert finish(process)[0] == 3
    assert notes(stage) == ["epilog:n1:17:site"]
    stage.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        stage.socket.accept()


@pytest.mark.parametrize("partition", ["gpu", "host"])
def test_sites_epilog_runs_first(stage: Stage, partition: str) -> None:
    """It does not wait until the pods are gone."""
    ran = stage.folder / "ran"
    process = stage.hook(chain(stage, f"touch {ran}"), SLURM_JOB_PARTITION=partition, **EPILOG)
    if partition == "gpu":
        with stage.accept() as (peer, _):
            assert ran.exists()
            peer.sendall(wire.pack("gone"))
    assert finish(process)[0] == 0
    assert ran.exists()
    assert notes(stage) == []


@pytest.mark.parametrize(
    ("partition", "step", "code"), [("gpu", "", 0), ("gpu", "0", 1), ("host", "0", 0), ("gpuX", "0", 0)]
)
def test_task_prolog_stops_steps_of_bridged_jobs(stage: Stage, partition: str, step: str, code: int) -> None:
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


FAKE_SCONTROL = """\
#!/bin/sh
for word in "$SLURM_CONF" "$@"; do printf '%s\\n' "$word"; done >> "${0%/*}/told"
"""
SAYS = "waits for penstockd, which does not answer [penstock]"


def told_slurm(stage: Stage, **variables: str) -> tuple[int, list[str]]:
    """The exit code of PrologSlurmctld when nobody answers, and its calls of scontrol."""
    stage.install(admit_timeout=0)
    (stage.folder / "scontrol").write_text(FAKE_SCONTROL)
    (stage.folder / "scontrol").chmod(0o755)
    stage.socket.close()
    process = stage.hook("penstock-prolog", SLURM_JOB_PARTITION="gpu", **variables)
    process.communicate(timeout=60)
    told = stage.folder / "told"
    return process.returncode, told.read_text().split("\n")[:-1] if told.exists() else []


def test_comment_says_that_penstockd_does_not_answer(stage: Stage) -> None:
    """It stands before the owner's own comment."""
    code, words = told_slurm(stage, SLURM_JOB_ID="17", SLURM_JOB_COMMENT="run 3")
    assert code == 1
    assert words == ["/etc/slurm/slurm.conf", "update", "JobId=17", f"Comment={SAYS} run 3"]


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("", [f"Comment={SAYS}"]),
        ("waits for gpu on n1: 0 free [penstock] run 3", [f"Comment={SAYS} run 3"]),
        ("two\nlines", [f"Comment={SAYS} two lines"]),
        (f"{SAYS} run 3", []),
    ],
)
def test_comment_has_the_reason_once(stage: Stage, comment: str, expected: list[str]) -> None:
    """It replaces an earlier reason; an unchanged comment is not written again."""
    code, words = told_slurm(
        stage, SLURM_JOB_ID="18", SLURM_ARRAY_JOB_ID="17", SLURM_ARRAY_TASK_ID="3", SLURM_JOB_COMMENT=comment
    )
    assert (code, words[3:]) == (1, expected)
    assert words[2:3] == (["JobId=17_3"] if expected else [])


def test_prolog_without_scontrol_still_refuses(stage: Stage) -> None:
    """The job is requeued, and slurmctld's log has the reason."""
    stage.install(admit_timeout=0)
    stage.socket.close()
    process = stage.hook("penstock-prolog", SLURM_JOB_PARTITION="gpu", SLURM_JOB_ID="17")
    said = b"".join(process.communicate(timeout=60))
    assert (process.returncode, b"scontrol: No such file" in said) == (1, True)


def test_comment_says_that_penstockd_is_starting(stage: Stage) -> None:
    """It answers, but waits for Slurm or Kubernetes itself."""
    stage.install(admit_timeout=0)
    (stage.folder / "scontrol").write_text(FAKE_SCONTROL)
    (stage.folder / "scontrol").chmod(0o755)
    process = stage.hook("penstock-prolog", SLURM_JOB_PARTITION="gpu", SLURM_JOB_ID="17")
    with stage.accept() as (peer, _):
        peer.sendall(wire.pack("wait"))
    process.communicate(timeout=60)
    said = "waits for penstockd, which is not in touch with Slurm or Kubernetes [penstock]"
    assert (process.returncode, (stage.folder / "told").read_text().split("\n")[3]) == (1, f"Comment={said}")
