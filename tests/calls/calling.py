"""A job and its batch script's variables, and shorthands for planning an srun in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.calls import outcomes, srunplan

JOB = outcomes.Job(id=17, release=(22, 5), cluster=b"c")

BATCH = {
    b"PATH": b"/usr/bin",
    b"HOME": b"/home/u",
    b"LD_PRELOAD": b"/home/u/evil.so",
    b"SLURM_CONF": b"/home/u/slurm.conf",
    b"SLURM_JOB_ID": b"17",
    b"SLURM_JOBID": b"17",
    b"SLURM_JOB_NAME": b"train",
    b"SLURM_JOB_NODELIST": b"n[1-2]",
    b"SLURM_JOB_NUM_NODES": b"2",
    b"SLURM_NNODES": b"2",
    b"SLURM_NTASKS": b"4",
    b"SLURM_NPROCS": b"4",
    b"SLURM_NTASKS_PER_NODE": b"2",
    b"SLURM_TASK_PID": b"99",
    b"SLURM_WORKING_CLUSTER": b"c:127.0.0.1:1:9728:109",
}
"""A part of what a batch script has, some of it set by its user."""

Text = Mapping[str, str | None]


def environment(changes: Text | None = None) -> dict[bytes, bytes]:
    """BATCH with these variables; None removes one."""
    given = changes or {}
    kept = {name: value for name, value in BATCH.items() if name.decode() not in given}
    return kept | {name.encode(): value.encode() for name, value in given.items() if value is not None}


def plan(
    text: str, changes: Text | None = None, *, job: outcomes.Job = JOB, files: outcomes.Files | None = None
) -> outcomes.Step | outcomes.Answer | outcomes.Run | outcomes.Wanted:
    """Plan these words, which blanks separate."""
    words = [word.encode() for word in text.split()]
    return srunplan.plan(words, environment(changes), job, files)


def step(
    text: str, changes: Text | None = None, *, job: outcomes.Job = JOB, files: outcomes.Files | None = None
) -> outcomes.Step:
    """The same where it has to be a step."""
    planned = plan(text, changes, job=job, files=files)
    assert isinstance(planned, outcomes.Step), planned
    return planned


def answer(
    text: str, changes: Text | None = None, *, job: outcomes.Job = JOB, files: outcomes.Files | None = None
) -> tuple[str, int]:
    """Words and code, where srun ends at once."""
    planned = plan(text, changes, job=job, files=files)
    assert isinstance(planned, outcomes.Answer), planned
    return planned.stderr.decode(), planned.code


def options(planned: outcomes.Step) -> str:
    """The real srun's options, without those that each step has."""
    fixed = (b"--jobid=17", b"--mpi=none", b"--chdir=/")
    assert planned.argv[:3] == fixed
    return b" ".join(planned.argv[3:]).decode()


def slurm_conf(folder: Path) -> dict[str, str]:
    """An environment in which the installed srun reads its command line, and no Slurm is running."""
    conf = folder / "slurm.conf"
    conf.write_text("ClusterName=c\nSlurmctldHost=localhost\nNodeName=localhost\nPartitionName=p Nodes=ALL\n")
    return {"SLURM_CONF": str(conf), "LC_ALL": "C"}
