"""--multi-prog's file is read as srun 22.05.8 and its slurmstepd read it."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from penstock.calls import multiprog, outcomes
from tests.calls import calling

RELEASE = (22, 5)


def words(
    content: bytes, tasks: int | None = 4, more: tuple[bytes, ...] = ()
) -> list[tuple[bytes, ...] | None]:
    """The words of each task."""
    found = multiprog.read(content, b"c", tasks, RELEASE)
    return [found.words(task, more) for task in range(found.tasks)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"0-3 echo %t %o\n", ["echo 0 0", "echo 1 1", "echo 2 2", "echo 3 3"]),
        (b"0-1 a %t %o\n2,3 b %t %o\n", ["a 0 0", "a 1 1", "b 2 0", "b 3 1"]),
        (b"3,0-2 a %o", ["a 1", "a 2", "a 3", "a 0"]),
        (b"# c\n  # d\n\n1,3 a %o\n* b %o\n", ["b 0", "a 0", "b 2", "a 1"]),
        (b"\t*\ta\tb \n", ["a b"] * 4),
        (b"0 a\\\n  b c\n1-3 x", ["a b c", "x", "x", "x"]),
        (b"# c\\\n0 x\n* a\n", ["a"] * 4),
        (b"0-3,, a", ["a"] * 4),
        (b"0-3 a%tb%o", ["a0b0", "a1b1", "a2b2", "a3b3"]),
    ],
)
def test_words_of_tasks(content: bytes, expected: list[str]) -> None:
    """Ranges, the asterisk, task and offset, comments, continuations."""
    assert words(content) == [tuple(text.encode().split()) for text in expected]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"echo 'x  y' %% %d z", (b"echo", b"x  y", b"", b"", b"z")),
        (b"echo '' x", (b"echo", b"", b"x")),
        (b"echo a\\ b \\'c \"d e\" 'x'y", (b"echo", b"a b", b"'c", b'"d', b'e"', b"xy")),
        (b"echo a b \\\n  c", (b"echo", b"a", b"b", b"", b"c")),
        (b"echo 'a\\\n b' c", (b"echo", b"a\\", b"c")),
        (b"echo a\\", (b"echo", b"a")),
        (b"echo a%", (b"echo", b"a")),
        (b"echo 'a b", None),
        (b"echo 'a\\", None),
    ],
)
def test_quotes_and_escapes(line: bytes, expected: tuple[bytes, ...] | None) -> None:
    """As slurmstepd takes them, whatever one would expect."""
    assert words(b"* " + line, 1) == [expected]


def test_words_after_the_file_follow_those_of_each_program() -> None:
    assert words(b"* a b", 1, (b"c", b"d e")) == [(b"a", b"b", b"c", b"d e")]


@pytest.mark.parametrize(
    ("content", "tasks"),
    [(b"0-9 a", 10), (b"0 a\n1-2 b", 3), (b"* a", 1), (b"0-2 a\n* b", 3)],
)
def test_the_file_tells_the_number_of_tasks(content: bytes, tasks: int) -> None:
    """If no option does; an asterisk alone is one task."""
    assert multiprog.read(content, b"c", None, RELEASE).tasks == tasks


@pytest.mark.parametrize(
    ("content", "tasks", "messages"),
    [
        (b"", 4, [b"Configuration file c invalid, no record for task id 0"]),
        (b"0 a", 2, [b"Configuration file c invalid, no record for task id 1"]),
        (b"1 a", None, [b"Configuration file c invalid, no record for task id 0"]),
        (b"0-3 a", 2, [b"Invalid task id, 3 >= ntasks", b"Line 1 of configuration file c invalid"]),
        (b"0 a\n0 b", 4, [b"Duplicate record for task 0", b"Line 2 of configuration file c invalid"]),
        (
            b"* a\n0 b",
            4,
            [
                b"Task range specification with asterisk must be last",
                b"Line 2 of configuration file c invalid",
            ],
        ),
        (b"0", 4, [b"Line 1 of configuration file c invalid"]),
        (b"x a", 4, [b"Invalid task range specification (x)", b"Line 1 of configuration file c invalid"]),
        (b"1-x a", 4, [b"Invalid task range specification", b"Line 1 of configuration file c invalid"]),
        (b"x-1 a", 4, [b"Invalid task range specification (x-1)", b"Line 1 of configuration file c invalid"]),
        (b"3-1 a", 4, [b"Invalid task range, 3-1", b"Line 1 of configuration file c invalid"]),
        (b"-3 a", 4, [b"Invalid task id, -3 < 0", b"Line 1 of configuration file c invalid"]),
        (b"0 " + b"a" * 16384, 4, [b"Line 1 of configuration file c too long"]),
        (b"\n" * 60001, 4, [b"Multi_prog config file c is too large"]),
        (b"* a", 2_000_000_000, [b"Invalid task count 2000000000"]),
        (
            b"0-999999999 a",
            None,
            [b"Invalid task id, 999999999 >= ntasks", b"Line 1 of configuration file c invalid"],
        ),
    ],
)
def test_wrong_files(content: bytes, tasks: int | None, messages: list[bytes]) -> None:
    """srun's words, the last of which names the file. A huge range costs nothing."""
    with pytest.raises(multiprog.Invalid) as caught:
        multiprog.read(content, b"c", tasks, RELEASE)
    assert list(caught.value.args) == messages


def test_later_releases_read_larger_files() -> None:
    assert multiprog.read(b"\n" * 60001 + b"0 a", b"c", 1, (25, 5)).words(0) == (b"a",)


def test_a_step_of_many_programs() -> None:
    """Named like the file, with as many tasks as it says."""
    files = {b"dir/conf": b"0-1 ./a %t\n2 ./b 'x y'\n"}
    changes = {"SLURM_NTASKS": None, "SLURM_NPROCS": None}
    planned = calling.step("-l --multi-prog dir/conf more", changes, files=files)
    assert calling.options(planned) == "--job-name=conf --label --ntasks=3"
    assert planned.program == (b"more",)
    assert planned.multi_prog
    assert planned.multi_prog.words(2, planned.program) == (b"./b", b"x y", b"more")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            outcomes.Unreadable(b"No such file or directory"),
            "srun: error: Could not open multi_prog config file c\n",
        ),
        (b"0 a", "srun: error: Configuration file c invalid, no record for task id 1\n"),
    ],
)
def test_srun_ends_without_a_valid_file(content: bytes | outcomes.Unreadable, words: str) -> None:
    changes = {"SLURM_SRUN_MULTI": "1", "SLURM_EXIT_ERROR": "7"}
    assert calling.answer("c", changes, files={b"c": content}) == (words, 7)


@given(st.binary(max_size=60), st.one_of(st.none(), st.integers(1, 5)))
def test_any_content_is_valid_or_not(content: bytes, tasks: int | None) -> None:
    """And every task of a valid file has a line."""
    try:
        found = multiprog.read(b"0-1 x\n" + content, b"c", tasks, RELEASE)
    except multiprog.Invalid:
        return
    assert all(any(line.words for line in found.lines) for _ in range(found.tasks))
    for task in range(found.tasks):
        found.words(task)


@given(
    st.lists(st.sampled_from([b"0 a", b"1-2 b", b"* c", b"3 d\\", b"e", b"#", b"", b"4 'f", b"5 %t%o%%\\"]))
)
def test_lines_in_any_order_are_read(lines: list[bytes]) -> None:
    try:
        found = multiprog.read(b"\n".join(lines), b"c", None, RELEASE)
    except multiprog.Invalid:
        return
    for task in range(found.tasks):
        assert found.words(task) is None or found.words(task)
