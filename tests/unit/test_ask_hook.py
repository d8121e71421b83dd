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
    """The hook leaves before it connects."""
    process = stage.hook(name, SLURM_JOB_PARTITION="host", SLURM_JOB_ID="1")
    assert process.wait(timeout=60) == 0
    process.communicate()
    stage.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        stage.socket.accept()


def keep_environment(stage: Stage, job: int, *entries: bytes, count: int | None = None) -> None:
    """As slurmctld does in its state folder."""
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
def test_the_prolog_tells_what_would_run_code_on_the_node(
    stage: Stage, entries: tuple[bytes, ...], armed: tuple[bytes, ...]
) -> None:
    """Also when job_submit.lua has made the first of two variables harmless, and of an array's tasks."""
    keep_environment(stage, 15, *entries)
    process = stage.hook(
        "penstock-prolog", SLURM_JOB_PARTITION="gpu", SLURM_JOB_ID="17", SLURM_ARRAY_JOB_ID="15"
    )
    with stage.accept() as (peer, message):
        assert (message.number("job"), message.all("armed"), message.all("unread")) == (17, armed, ())
        peer.sendall(wire.pack("no"))
    finish(process)


@pytest.mark.parametrize(
    ("count", "words"), [(None, b"No such file"), (4, b"no list of variables"), (6, b"no list of variables")]
)
def test_the_prolog_says_that_it_could_not_look(stage: Stage, count: int | None, words: bytes) -> None:
    """What is not there or not understood is not taken for harmless."""
    if count is not None:
        keep_environment(stage, 17, *HARMLESS, b"A=b", count=count)
    process = stage.hook("penstock-prolog", SLURM_JOB_PARTITION="gpu", SLURM_JOB_ID="17")
    with stage.accept() as (peer, message):
        assert b"state/hash.7/job.17/environment: " in message.one("unread")
        assert words in message.one("unread")
        peer.sendall(wire.pack("no"))
    finish(process)


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


def test_the_epilog_waits_for_no_answer_beyond_its_time(stage: Stage) -> None:
    """A penstockd that hears and says nothing: Slurm's own limit must not come first."""
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


def notes(stage: Stage) -> list[str]:
    """What Epilogs have left beside penstockd's socket."""
    return sorted(path.name for path in stage.folder.glob("epilog:*"))


EPILOG = {"SLURM_JOB_ID": "17", "SLURMD_NODENAME": "n1"}


def test_an_epilog_that_ends_well_leaves_no_note(stage: Stage) -> None:
    """There is one while it runs, and it is in place of an older one."""
    (stage.folder / "epilog:n1:17:ours").symlink_to("/nowhere")
    process = stage.hook("penstock-epilog", SLURM_JOB_PARTITION="gpu", **EPILOG)
    with stage.accept() as (peer, _):
        (note,) = epilogs.Notes(stage.folder).read()
        assert (note.node, note.job_id, note.is_ours, note.is_running) == ("n1", 17, True, True)
        peer.sendall(wire.pack("gone"))
    assert finish(process)[0] == 0
    assert notes(stage) == []


def test_a_killed_epilog_leaves_its_note(stage: Stage) -> None:
    """By it penstockd, which is not root, knows whose Epilog the node was drained for."""
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


def test_an_epilog_that_could_ask_nobody_leaves_its_note(stage: Stage) -> None:
    """penstockd was away all the time."""
    stage.install(release_timeout=1)
    stage.socket.close()
    process = stage.hook("penstock-epilog", SLURM_JOB_PARTITION="gpu", **EPILOG)
    assert finish(process)[0] == 1
    assert notes(stage) == ["epilog:n1:17:ours"]


def test_an_epilog_that_can_leave_no_note_releases_all_the_same(stage: Stage) -> None:
    """Only nobody would free the node after it."""
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
    """The installed Epilog with one of the site's own, which has these lines; the chain's name."""
    (stage.folder / "site-epilog").write_text(f"#!/bin/sh\n{site}\n")
    (stage.folder / "site-epilog").chmod(0o755)
    own, theirs = str(stage.folder / "penstock-epilog"), str(stage.folder / "site-*")
    (stage.folder / "chain").write_text(includes.render_chain("Epilog", own=own, site=theirs))
    (stage.folder / "chain").chmod(0o755)
    return "chain"


@pytest.mark.parametrize("partition", ["gpu", "host"])
def test_a_failed_epilog_of_the_sites_is_noted_in_every_partition(stage: Stage, partition: str) -> None:
    """Slurm learns of it, and pods are waited for all the same; a drain of ours would hide it."""
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
def test_the_sites_epilog_runs_first(stage: Stage, partition: str) -> None:
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


FAKE_SCONTROL = """\
#!/bin/sh
for word in "$SLURM_CONF" "$@"; do printf '%s\\n' "$word"; done >> "${0%/*}/told"
"""
SAYS = "waits for penstockd, which does not answer [penstock]"


def told_slurm(stage: Stage, **variables: str) -> tuple[int, list[str]]:
    """How PrologSlurmctld ends when nobody answers, and what it made scontrol do."""
    stage.install(admit_timeout=0)
    (stage.folder / "scontrol").write_text(FAKE_SCONTROL)
    (stage.folder / "scontrol").chmod(0o755)
    stage.socket.close()
    process = stage.hook("penstock-prolog", SLURM_JOB_PARTITION="gpu", **variables)
    process.communicate(timeout=60)
    told = stage.folder / "told"
    return process.returncode, told.read_text().split("\n")[:-1] if told.exists() else []


def test_a_penstockd_that_does_not_answer_is_told_to_the_jobs_owner(stage: Stage) -> None:
    """Where squeue shows it, before what the owner wrote there himself."""
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
def test_the_reason_stands_before_the_owners_comment_once(
    stage: Stage, comment: str, expected: list[str]
) -> None:
    """In place of an earlier reason; what is there already is not written again."""
    code, words = told_slurm(
        stage, SLURM_JOB_ID="18", SLURM_ARRAY_JOB_ID="17", SLURM_ARRAY_TASK_ID="3", SLURM_JOB_COMMENT=comment
    )
    assert (code, words[3:]) == (1, expected)
    assert words[2:3] == (["JobId=17_3"] if expected else [])


def test_a_host_without_scontrol_still_says_no(stage: Stage) -> None:
    """The job goes back to the queue, and slurmctld's log has the reason."""
    stage.install(admit_timeout=0)
    stage.socket.close()
    process = stage.hook("penstock-prolog", SLURM_JOB_PARTITION="gpu", SLURM_JOB_ID="17")
    said = b"".join(process.communicate(timeout=60))
    assert (process.returncode, b"scontrol: No such file" in said) == (1, True)


def test_a_penstockd_that_cannot_say_yet_is_told_as_such(stage: Stage) -> None:
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
