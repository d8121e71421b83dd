"""The jobs of the crash matrix: what is submitted, which event happens, and the expected end.

Every script appends a line to `runs` when it begins, which shows second runs of an attempt; missing or
repeated output is visible too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from penstock_lab import testing
from tests.crash import happenings
from tests.crash.tasks import Act, Job, Task, nothing

Lab = testing.RunningLab
PLAIN = "echo begin\nsleep 1\necho end\nexit 3\n"
LONG = "echo begin\nsleep 300\n"
ONCE_LONG = "echo begin\n[ ${SLURM_RESTART_COUNT:-0} -gt 0 ] || sleep 300\necho end\nexit 3\n"
WAITING = "echo begin\nwhile [ ! -e go ]; do sleep 0.2; done\necho end\nexit 3\n"
TRAPPING = "trap 'echo got; exit 5' USR1\necho begin\nwhile :; do sleep 0.1; done\n"
CANCELLED = ("CANCELLED", "")
THREE = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """A kind of job."""

    script: str = PLAIN
    options: tuple[str, ...] = ()
    tasks: int = 0
    """Number of array tasks; 0 for no array."""
    before: Callable[[Lab], None] = lambda lab: None
    """Setup before the submission."""
    act: Act = nothing
    there: Act = nothing
    """Event while a process waits at the step, before the kill."""
    after: Act = nothing
    """Event after the lab is repaired."""
    streamed: bool = False
    """Whether its output is outside the shared folders."""
    record: tuple[str, str] = ("FAILED", "3:0")
    """The end without a kill; no exit code: any."""
    texts: tuple[str, ...] = ("begin\nend\n",)
    """Its allowed output."""
    unseen: bool = False
    """Whether it may end without having started."""
    restarted: bool = False
    """Whether Slurm must have run it again."""
    reason: str = ""
    """Expected text of Slurm's comment."""
    proof: Act = nothing
    """Further checks at the end."""

    def submit(self, lab: Lab, folder: Path, outside: Path) -> Job:
        """Submit it with sbatch."""
        place = outside if self.streamed else folder
        text = f"#!/bin/sh\necho run >>{folder}/runs${{SLURM_ARRAY_TASK_ID:-}}\n{self.script}"
        suffix = "%a" if self.tasks else ""
        array = (f"--array=0-{self.tasks - 1}",) if self.tasks else ()
        words = (f"--output={place}/{folder.name}.out{suffix}", *array, *self.options)
        job_id = lab.sbatch(text, *words, cwd=folder)
        names = [str(number) for number in range(self.tasks)] or [""]
        tasks = (
            Task(
                job_id=f"{job_id}_{name}" if name else job_id,
                output=place / f"{folder.name}.out{name}",
                ran=folder / f"runs{name}",
            )
            for name in names
        )
        return Job(job_id=job_id, folder=folder, tasks=tuple(tasks))


CANCELLED_THERE = Shape(
    script=LONG, there=happenings.scancel, record=CANCELLED, texts=("", "begin\n"), unseen=True
)
SHAPES = {
    "plain": Shape(),
    "gang": Shape(options=("--nodes=2",)),
    "array": Shape(tasks=THREE),
    "streamed": Shape(streamed=True),
    "cancelled": Shape(script=LONG, act=happenings.cancel, record=CANCELLED, texts=("begin\n",)),
    "cancelled there": CANCELLED_THERE,
    "cancelled array": Shape(
        script=LONG, tasks=THREE, act=happenings.cancel, record=CANCELLED, texts=("begin\n",)
    ),
    "signalled": Shape(
        script=TRAPPING, act=happenings.signal, record=("FAILED", "5:0"), texts=("begin\ngot\n",)
    ),
    "requeued": Shape(script=ONCE_LONG, act=happenings.requeue, restarted=True),
    "requeued there": Shape(script=ONCE_LONG, there=happenings.scontrol_requeue, restarted=True),
    "requeued array": Shape(script=ONCE_LONG, tasks=THREE, act=happenings.requeue, restarted=True),
    "evicted": Shape(script=ONCE_LONG, act=happenings.evict, restarted=True),
    "deleted": Shape(
        script=LONG,
        act=happenings.delete,
        record=("FAILED", ""),
        texts=("begin\n", "begin\npenstock: the job's pod was deleted from outside\n"),
        reason="deleted from outside",
    ),
    "refused": Shape(
        before=happenings.occupy, after=happenings.vacate, options=("--nodelist=n4", "--gres=gpu:2")
    ),
    "half-refused": Shape(
        before=happenings.refuse_pods,
        after=happenings.take_pods,
        options=("--nodes=2", "--nodelist=n3,n4"),
        restarted=True,
    ),
    "first": Shape(before=happenings.forget_the_user, proof=happenings.closed_to_others),
    "stuck": Shape(
        script=WAITING,
        before=happenings.hurry_the_epilog,
        act=happenings.hold_the_pod,
        after=happenings.let_go,
    ),
    "drained": Shape(before=happenings.drain),
    "recovered": Shape(script=WAITING, act=happenings.crash_twice, after=happenings.go),
    "beside": Shape(before=happenings.leave_an_orphan),
}
