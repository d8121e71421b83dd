"""The jobs of the crash matrix: what is submitted, what happens to it on the way, and how it has to end.

Every script leaves a line in `runs` when it begins, so that a second run of the same attempt is seen, and its
output tells whether anything of it is missing or doubled.
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
    """How many an array has; 0 is no array."""
    before: Callable[[Lab], None] = lambda lab: None
    """What is there before it is submitted."""
    act: Act = nothing
    there: Act = nothing
    """What happens while somebody stands at the step, before the victim is killed."""
    after: Act = nothing
    """What happens when the lab is whole again."""
    streamed: bool = False
    """Whether its output goes where pods cannot write."""
    record: tuple[str, str] = ("FAILED", "3:0")
    """How it ends when nobody is killed; no exit code: any."""
    texts: tuple[str, ...] = ("begin\nend\n",)
    """What it may have written then."""
    unseen: bool = False
    """Whether it may end without having begun."""
    restarted: bool = False
    """Whether Slurm must have run it again."""
    reason: str = ""
    """What Slurm's comment says then."""
    proof: Act = nothing
    """What else must be true in the end."""

    def submit(self, lab: Lab, folder: Path, outside: Path) -> Job:
        """Hand it to sbatch."""
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
