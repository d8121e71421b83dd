"""Steps run in order where they must and side by side where they may; the first failure stops the rest."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock_lab import taskgraph


class Log:
    """Remembers what began and ended, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def began(self, name: str) -> None:
        self.events.append(("began", name))

    def ended(self, name: str, what: str, seconds: float) -> None:
        self.events.append(("ended", name))

    def names(self, kind: str) -> list[str]:
        return [name for event, name in self.events if event == kind]


def nothing() -> None:
    """Nobody needs to give up."""


def step(name: str, *after: str) -> taskgraph.Step:
    return taskgraph.Step(name=name, after=after, run=lambda: "done")


@st.composite
def graphs(draw: st.DrawFn) -> list[taskgraph.Step]:
    """Steps that wait only for earlier ones, in any order of the list."""
    count = draw(st.integers(1, 8))
    made = [
        step(str(n), *draw(st.sets(st.sampled_from([str(m) for m in range(n)] or ["0"]))))
        for n in range(count)
    ]
    made[0] = step("0")
    return draw(st.permutations(made))


class TestOrder:
    @given(graph=graphs())
    def test_no_step_begins_before_those_it_waits_for_have_ended(self, graph: list[taskgraph.Step]) -> None:
        """Every step runs exactly once, after what it depends on."""
        log = Log()
        taskgraph.run_all(graph, listener=log, give_up=nothing)
        assert sorted(log.names("ended")) == sorted(each.name for each in graph)
        for each in graph:
            began = log.events.index(("began", each.name))
            assert all(log.events.index(("ended", earlier)) < began for earlier in each.after)

    def test_independent_steps_run_side_by_side(self) -> None:
        """Two that need each other's presence both get through."""
        together = threading.Barrier(2, timeout=60)

        def meet() -> str:
            together.wait()
            return "met"

        log = Log()
        pair = [taskgraph.Step(name=name, run=meet) for name in "ab"]
        taskgraph.run_all(pair, listener=log, give_up=nothing)
        assert sorted(log.names("ended")) == ["a", "b"]

    def test_waiting_for_what_does_not_exist_is_a_defect(self) -> None:
        """A misspelt name must not wait for ever."""
        with pytest.raises(ValueError, match="nowhere"):
            taskgraph.run_all([step("a", "nowhere")], listener=Log(), give_up=nothing)

    def test_waiting_for_each_other_is_a_defect(self) -> None:
        """A circle must not wait for ever either."""
        with pytest.raises(ValueError, match="each other"):
            taskgraph.run_all([step("a", "b"), step("b", "a")], listener=Log(), give_up=nothing)


class TestFailure:
    def test_what_comes_after_a_failure_never_begins(self) -> None:
        """The error is the caller's to see, and nothing was built on it."""

        def fail() -> str:
            raise errors.LabError("munged is broken")

        log = Log()
        with pytest.raises(errors.LabError, match="munged is broken"):
            taskgraph.run_all(
                [taskgraph.Step(name="a", run=fail), step("b", "a")], listener=log, give_up=nothing
            )
        assert log.names("began") == ["a"]

    def test_what_runs_beside_a_failure_is_told_to_give_up_and_waited_for(self) -> None:
        """Nobody is left making processes when the error comes out."""
        stop, beside = threading.Event(), threading.Event()
        ended: list[str] = []

        def long() -> str:
            beside.set()
            stop.wait(5)
            ended.append("long")
            return "stopped"

        def fail() -> str:
            beside.wait(5)
            raise errors.LabError("no")

        both = [taskgraph.Step(name="long", run=long), taskgraph.Step(name="fail", run=fail)]
        with pytest.raises(errors.LabError, match="no"):
            taskgraph.run_all(both, listener=Log(), give_up=stop.set)
        assert ended == ["long"]

    def test_a_full_disk_is_one_clear_line(self) -> None:
        """Whatever step runs out of space, the person reads the same thing."""

        def write() -> str:
            raise OSError(errno.ENOSPC, "No space left on device")

        with pytest.raises(errors.LabError, match="no space left on the lab's disk") as caught:
            taskgraph.run_all(
                [taskgraph.Step(name="database files", run=write)], listener=Log(), give_up=nothing
            )
        assert "database files" in caught.value.message
        assert "--dir" in caught.value.hint

    def test_any_other_error_of_the_system_names_the_step(self) -> None:
        """No traceback for a missing permission."""

        def write() -> str:
            raise PermissionError(errno.EACCES, "Permission denied", "/lab/etc")

        with pytest.raises(errors.LabError, match=r"configuration: .*Permission denied"):
            taskgraph.run_all(
                [taskgraph.Step(name="configuration", run=write)], listener=Log(), give_up=nothing
            )


def test_what_waits_for_a_worker_is_not_begun_after_a_failure() -> None:
    """A lab of hundreds of nodes would start every one of them only to end it again."""
    begun: list[int] = []
    given_up = threading.Event()

    def fail() -> str:
        raise errors.LabError("no")

    def begin(number: int) -> str:
        begun.append(number)
        assert given_up.wait(30)
        time.sleep(0.2)
        return "done"

    many = [taskgraph.Step(name=f"n{number}", run=partial(begin, number)) for number in range(50)]
    with pytest.raises(errors.LabError, match="no"):
        taskgraph.run_all((taskgraph.Step(name="bad", run=fail), *many), listener=Log(), give_up=given_up.set)
    assert len(begun) <= 2 * taskgraph.WORKERS


PROGRAM = """
import sys, threading
from penstock_lab import taskgraph

has_begun = threading.Event()

class Quiet:
    def began(self, name): pass
    def ended(self, name, what, seconds): pass

def work():
    print("begun", flush=True)
    has_begun.set()
    sys.stdin.readline()
    print("ended", flush=True)
    return ""

try:
    one = taskgraph.Step(name="x", run=work)
    taskgraph.run_all([one], listener=Quiet(), give_up=lambda: print("given up", flush=True))
except KeyboardInterrupt:
    print("cleaning up", flush=True)
"""


def test_a_second_signal_does_not_begin_the_cleaning_up_too_early() -> None:
    """What has begun may start a daemon yet."""
    argv, pipe = [sys.executable, "-c", PROGRAM], subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "begun\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "given up\n"
        child.send_signal(signal.SIGINT)
        assert "please wait" in child.stderr.readline()
        said, _ = child.communicate("go on\n", timeout=30)
    assert said == "ended\ncleaning up\n"


TORN = """
import signal, threading
begin = threading.Thread.start

def start(thread):
    begin(thread)
    has_begun.wait()
    signal.raise_signal(signal.SIGINT)

threading.Thread.start = start
"""


def test_a_signal_while_a_step_is_being_begun_does_not_lose_it() -> None:
    """Python does not wait for a thread whose start was interrupted; the cleaning up would not either."""
    argv, pipe = [sys.executable, "-c", TORN + PROGRAM], subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        assert [child.stdout.readline() for _ in range(2)] == ["begun\n", "given up\n"]
        said, _ = child.communicate("go on\n", timeout=30)
    assert said == "ended\ncleaning up\n"
