"""Files with names of nodes are read in the pod; the real srun gets the names."""

from __future__ import annotations

import pytest

from penstock.calls import hostfiles, outcomes
from tests.calls import calling

FILE = b"n2\nn1*2 # twice\n\n#n9\nn2,n1\n"
MISSING = outcomes.Unreadable(b"No such file or directory")


@pytest.mark.parametrize(
    ("text", "changes", "files"),
    [
        ("-w ./f x", {}, "./f"),
        ("-x a/f -w b/f x", {}, "a/f b/f"),
        ("-F f x", {}, "f"),
        ("-w ./a -F f x", {}, "f"),
        ("-F f -w ./a x", {}, "./a"),
        ("x", {"SLURM_HOSTFILE": "f"}, "./f"),
        ("x", {"SLURM_HOSTFILE": "/a/f"}, "/a/f"),
        ("--multi-prog c", {"SLURM_HOSTFILE": "c"}, "c ./c"),
        ("--multi-prog ./c a", {"SLURM_HOSTFILE": "c"}, "./c"),
    ],
)
def test_wanted_files(text: str, changes: calling.Text, files: str) -> None:
    """Each once."""
    assert calling.plan(text, changes) == outcomes.Wanted(tuple(files.encode().split()))


@pytest.mark.parametrize("text", ["-w n1 x", "-F f -w n1 x", "-w n1"])
def test_names_alone_want_no_file(text: str) -> None:
    """SLURM_HOSTFILE counts only without --nodelist."""
    planned = calling.plan(text, {"SLURM_HOSTFILE": "f"})
    assert not isinstance(planned, outcomes.Wanted)


@pytest.mark.parametrize(
    ("text", "changes", "options"),
    [
        ("-w ./f x", {}, "--nodelist=n2,n1,n1,n2,n1"),
        ("-x ./f -n1 x", {}, "--ntasks=1 --exclude=n2,n1,n1,n2,n1"),
        ("-F ./f x", {}, "--nodelist=n2,n1,n1,n2,n1"),
        ("-m arbitrary -w ./f x", {}, "--distribution=arbitrary --nodelist=n2,n1,n1,n2,n1"),
        ("-m arbitrary -n3 -w ./f x", {}, "--distribution=arbitrary --ntasks=3 --nodelist=n2,n1,n1"),
        (
            "x",
            {"SLURM_HOSTFILE": "f", "SLURM_NTASKS": "3"},
            "--distribution=arbitrary --nodelist=n2,n1,n1 --ntasks=3",
        ),
        (
            "-n3 x",
            {"SLURM_HOSTFILE": "f", "SLURM_JOB_NUM_NODES": None},
            "--ntasks=3 --distribution=arbitrary --nodelist=n2,n1,n1",
        ),
    ],
)
def test_names_of_files(text: str, changes: calling.Text, options: str) -> None:
    """In order, as often as they are there; a layout by names takes as many as there are tasks."""
    files = {b"./f": FILE}
    assert calling.options(calling.step(text, changes, files=files)) == f"--job-name=x {options}"


OPENING = "slurm_allocate_resources error opening file ./f, No such file or directory"


@pytest.mark.parametrize(
    ("text", "changes", "words", "code"),
    [
        ("-w ./f x", {}, [OPENING], 1),
        ("-x ./f x", {"SLURM_EXIT_ERROR": "7"}, [OPENING], 7),
        ("-F ./f x", {"SLURM_EXIT_ERROR": "7"}, [OPENING, "Invalid --nodefile node file"], 255),
        ("x", {"SLURM_HOSTFILE": "f"}, [OPENING, "Failure getting NodeNames from hostfile"], 1),
    ],
)
def test_unreadable_files(text: str, changes: calling.Text, words: list[str], code: int) -> None:
    """srun's words and codes differ by option."""
    found = calling.answer(text, changes, files={b"./f": MISSING})
    assert found == ("".join(f"srun: error: {line}\n" for line in words), code)


@pytest.mark.parametrize(
    ("content", "enough", "message"),
    [
        (b"", None, b"Hostlist is empty!"),
        (b"# n1\n", None, b"Hostlist is empty!"),
        (b"n1\n[x]\n", None, b"Invalid hostfile f contents on line 2"),
        (b"n1\n../../etc/passwd\n", None, b"Invalid hostfile f contents on line 2"),
        (b"n1,a/b\n", None, b"Invalid hostfile f contents on line 1"),
        (b"n1\nn2\n", 3, b"Too few NodeNames in Slurm Hostfile"),
        (b"n1*999999\n", None, b"Hostlist is too long for the allocate RPC!"),
    ],
)
def test_wrong_files(content: bytes, enough: int | None, message: bytes) -> None:
    """A slash would be a file on srun's host."""
    with pytest.raises(hostfiles.Invalid) as caught:
        hostfiles.names(content, b"f", enough)
    assert caught.value.args == (message,)


def test_a_hash_may_be_a_part_of_a_name() -> None:
    """After a backslash."""
    assert hostfiles.names(b"n1\\#a#b\nn2", b"f", None) == b"n1#a,n2"
