"""sbatch in pods: where its job may go, and what it may read."""

from __future__ import annotations

import pytest

from penstock.calls import commands, outcomes
from penstock.calls.requests import Request
from tests.calls.called import plan, planned, refusal

SCRIPT = b"#!/bin/bash\n#SBATCH --mem=1G\necho hi\n"
FILES = {b"job.sh": SCRIPT}


def test_script_is_read_in_the_pod() -> None:
    """Before anything is decided."""
    assert plan("sbatch", b"-n2", b"job.sh", b"a b") == outcomes.Wanted((b"job.sh",))
    run = planned("sbatch", b"-n2", b"dir/job.sh", b"a b", b"-x", files={b"dir/job.sh": SCRIPT})
    assert run.words == (b"-n2", b"--chdir=/nas/alice", b"--partition=gpu")
    assert (run.script, run.arguments) == ((b"job.sh", SCRIPT), (b"a b", b"-x"))
    assert run.folder == b"/nas/alice"


def test_script_from_standard_input() -> None:
    """Which is named as sbatch names it."""
    assert plan("sbatch", b"--parsable") == outcomes.Wanted((outcomes.STDIN,))
    assert planned("sbatch", files={outcomes.STDIN: SCRIPT}).script == (b"sbatch", SCRIPT)


def test_wrap_needs_no_file() -> None:
    run = planned("sbatch", b"--wrap", b"hostname; id")
    assert (run.script, run.arguments) == (None, ())
    assert run.words[:2] == (b"--wrap", b"hostname; id")


def test_unreadable_script_is_said_as_sbatch_says_it() -> None:
    found = plan("sbatch", b"job.sh", files={b"job.sh": outcomes.Unreadable(b"x")})
    assert found == outcomes.Answer(code=1, stderr=b"sbatch: error: Unable to open file job.sh\n")


@pytest.mark.parametrize(
    ("words", "script", "environment"),
    [
        ((b"-p", b"cpu"), SCRIPT, {}),
        ((b"--part=cpu",), b"#!/bin/sh\n#SBATCH -p host\n", {}),
        ((), b"#!/bin/sh\n#SBATCH -p cpu\n", {}),
        ((), b"#!/bin/sh\n#SBATCH -p host\n", {b"SBATCH_PARTITION": b"cpu"}),
    ],
)
def test_partition_is_repeated_last(
    words: tuple[bytes, ...], script: bytes, environment: dict[bytes, bytes]
) -> None:
    """As the last option it wins over whatever sbatch reads elsewhere."""
    run = planned("sbatch", *words, b"job.sh", files={b"job.sh": script}, environment=environment)
    assert run.words[-1] == b"--partition=cpu"


@pytest.mark.parametrize(
    ("words", "script"),
    [
        ((b"-p", b"host"), SCRIPT),
        ((b"-pgpu,host",), SCRIPT),
        ((), b"#!/bin/sh\n#SBATCH --partition=host\n"),
        ((b"--part=host",), b"#!/bin/sh\n#SBATCH -p gpu\n"),
        ((b"--container=/x",), SCRIPT),
        ((b"--export-file=/etc/x",), SCRIPT),
        ((b"--nodefile=/etc/x",), SCRIPT),
        ((b"-F", b"/etc/x"), SCRIPT),
        ((b"-w", b"./hosts"), SCRIPT),
        ((b"-x", b"/etc/hosts"), SCRIPT),
        ((b"-M", b"other"), SCRIPT),
        ((b"--bbf=/etc/x",), SCRIPT),
        ((), b"#!/bin/sh\n#SBATCH --bbf=/etc/x\n"),
        ((b"--no-such-option",), SCRIPT),
        ((), b"#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2\n"),
    ],
)
def test_refused(words: tuple[bytes, ...], script: bytes) -> None:
    """Other partitions, other clusters, and whatever sbatch would read on the node."""
    refusal("sbatch", *words, b"job.sh", files={b"job.sh": script})


def test_partition_of_a_reservation_or_none() -> None:
    """Without a default partition one has to be named."""
    job = outcomes.Job(id=17, release=(22, 5), commands=("sbatch",), bridged_partitions=("gpu",))
    found = commands.plan(Request(name="sbatch", words=(b"job.sh",)), job, FILES)
    assert isinstance(found, outcomes.Answer)
    assert b"name one with --partition" in found.stderr


def test_environment_becomes_the_jobs() -> None:
    """What sbatch itself would obey is renamed, and restored in the new pod; Slurm's own files stay ours."""
    given = {b"PATH": b"/x", b"A B": b"1", b"LD_PRELOAD": b"/x", b"SLURM_CONF": b"/x", b"SLURM_JWT": b"y"}
    run = planned("sbatch", b"job.sh", files=FILES, environment=given)
    assert run.environment == {b"PATH": b"/x", b"A B": b"1", b"PENSTOCK_GIVEN_LD_PRELOAD": b"/x"}


def test_own_folder_wins() -> None:
    """--chdir of the command line or the script."""
    assert planned("sbatch", b"-D", b"/nas/x", b"job.sh", files=FILES).words[:2] == (b"-D", b"/nas/x")
    script = b"#!/bin/sh\n#SBATCH --chdir=/nas/y\n"
    assert planned("sbatch", b"job.sh", files={b"job.sh": script}).words == (b"--partition=gpu",)


@pytest.mark.parametrize("word", [b"--help", b"--version", b"--usage"])
def test_questions_about_sbatch_itself(word: bytes) -> None:
    assert planned("sbatch", word).words == (word,)
