"""Names of -i, -o and -e: what srun 22.05.8 made of them, and what later releases' sources say."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from penstock.calls import outputpatterns
from penstock.calls.outputpatterns import StepFacts, Stream, TaskFacts

STEP = StepFacts(release=(22, 5), job=5, step=24, job_name=b"train", user=b"alice")
TASK = TaskFacts(3, 1, b"n2")
ARRAY = msgspec.structs.replace(STEP, array_job=4, array_task=12)
LATEST = (26, 5)


@pytest.mark.parametrize(
    ("name", "kind", "task"),
    [
        (None, "srun", -1),
        (b"all", "srun", -1),
        (b"ALL.log", "srun", -1),
        (b"-", "srun", -1),
        (b"-x", "srun", -1),
        (b"none", "nothing", -1),
        (b"None", "nothing", -1),
        (b"none.log", "file", -1),
        (b"1", "number", 1),
        (b"01", "number", 1),
        (b" +1", "number", 1),
        (b"", "number", 0),
        (b"1x", "file", -1),
        (b" ", "file", -1),
        (b"f.%j.%s", "file", -1),
        (b"f.%t", "each", -1),
        (b"f.%3n", "each", -1),
        (b"%N", "each", -1),
        (b"%u", "each", -1),
        (b"%%t", "file", -1),
        (b"%%%t", "each", -1),
        (b"f.\\%t", "file", -1),
        (b"al%t", "each", -1),
    ],
)
def test_kinds_of_names(name: bytes | None, kind: str, task: int) -> None:
    """A name that begins with all or a dash is the caller's own stream, and no file."""
    found = outputpatterns.stream(name)
    assert (found.kind, found.task) == (kind, task)


@pytest.mark.parametrize(
    ("name", "tasks", "kind"),
    [(b"1", 2, "task"), (b"2", 2, "file"), (b"007", 4, "file"), (b"", 1, "task"), (b"f", 9, "file")],
)
def test_a_number_is_a_task_if_there_are_so_many(name: bytes, tasks: int, kind: str) -> None:
    """Else the name of a file."""
    assert outputpatterns.settled(outputpatterns.stream(name), tasks).kind == kind


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (b"f.%j.%J.%s.%n.%N.%x.%u.%A.%a.%%", b"f.5.5.24.24.1.n2.train.alice.5.4294967294.%"),
        (b"f.%3j.%4s.%12t", b"f.005.0024.0000000003"),
        (b"%3J.%3x.%3A", b"005.24.train.005"),
        (b"f.%%t", b"f.%t"),
        (b"f.%%%t", b"f.%3"),
        (b"f.%%%%t", b"f.%%t"),
        (b"f.%%%j", b"f.%5"),
        (b"f.%2N.%3n", b"f.n2.001"),
        (b"f.\\%t\\x", b"f.%tx"),
        (b"f.%z", b"f.%z"),
        (b"f.%", b"f.%"),
        (b"f.%z%t", b"f.%z3"),
        (b"f.%%a%t", b"f.%a3"),
        (b"%b.%r.%S", b"%b.%r.%S"),
        (b"\xff\n%t", b"\xff\n3"),
    ],
)
def test_fields(pattern: bytes, expected: bytes) -> None:
    """Numbers are padded up to ten digits, texts never, unknown fields stay."""
    assert outputpatterns.path(Stream("each", pattern), STEP, TASK) == expected


@pytest.mark.parametrize(
    ("release", "facts", "expected"),
    [
        ((22, 5), ARRAY, b"4_12_%b_%r"),
        ((24, 11), ARRAY, b"4_12_2_%r"),
        (LATEST, ARRAY, b"4_12_2_0"),
        (LATEST, STEP, b"5_0_0_0"),
    ],
)
def test_fields_of_arrays(release: tuple[int, int], facts: StepFacts, expected: bytes) -> None:
    """Later releases know more of them."""
    step = msgspec.structs.replace(facts, release=release)
    assert outputpatterns.path(Stream("file", b"%A_%a_%b_%r"), step) == expected


def test_fields_of_tasks_stay_in_the_name_of_a_step() -> None:
    assert outputpatterns.path(Stream("each", b"%j.%2t"), STEP) == b"5.%2t"


@given(st.binary(max_size=20).filter(lambda name: b"\\" not in name))
def test_each_task_has_a_file_of_its_own_if_the_pattern_says_so(name: bytes) -> None:
    """And a pattern without a task's fields names one file for all of them."""
    found = outputpatterns.stream(name)
    paths = {outputpatterns.path(found, STEP, TaskFacts(task, task, b"m%d" % task)) for task in (1, 2)}
    if found.kind == "file":
        assert len(paths) == 1
    elif found.kind == "each":
        assert len(paths) == 2 or b"u" in name
