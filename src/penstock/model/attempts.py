"""One attempt of a job as penstockd saw it, from which the collector makes results.

penstockd has dropped root and writes no user's files. It leaves this record on the local disk, and the
collector, which can become the user, does the rest. Paths are bytes, because they need not be text.
"""

from __future__ import annotations

import msgspec

from penstock.model.reasons import OutcomeKind


class PodFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The last known state of a pod."""

    name: str
    namespace: str
    rank: int
    node: str
    image: str = ""
    image_id: str = ""  # as the container runtime reports it: with its digest, on real clusters
    started: str = ""
    ended: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""  # the container's termination message, where the agent puts resource usage


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What the attempt had of one node."""

    node: str
    millicpus: int
    memory: int
    gpus: int


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How the job ended, as the launcher was told."""

    at: float
    exit_code: int
    signal: int = 0
    kind: OutcomeKind = OutcomeKind.EXITED
    reason: str = ""  # in words; empty if the script ended by itself
    requeue: bool = False  # Slurm was asked to run the job again
    untold: bool = False
    """slurmctld did not take the reason: it goes to the accounting after the job has ended."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, from its launch until its last pod is gone."""

    job_id: int
    restart: int
    uid: int
    token: str  # secret while the job runs, so that nobody can create its folder first
    launched: float
    partition: str
    qos: str = ""
    submission: str = ""  # the job's, see model.jobs: Slurm may reuse its id later
    shown_id: str = ""
    """slurmctld's name of the job, such as 20_3 for an array task; slurmdbd may learn it much later."""
    shares: tuple[Share, ...] = ()
    image: str = ""
    workdir: bytes = b""  # where the script ran; only in the pod unless it is shared
    lost_workdir: bytes = b""  # the submit directory if pods do not see it; else empty
    workdir_is_shared: bool = False
    stdout: bytes = b""
    stderr: bytes = b""
    outputs: tuple[str, ...] = ()
    outputs_left: tuple[str, ...] = ()
    """Patterns that are not collected: they would match files of the array's other tasks."""
    output_dir: str = ""
    """$PENSTOCK_OUTPUT_DIR; empty if pods cannot see the results folder, or nobody collects."""
    uncollected: bool = False
    """No collector had ever run when the job started, so there was no place for output folders."""
    own_entrypoint: bool = False
    unlaunched: bool = False  # slurmd could not even start the launcher: there was never a pod
    end: End | None = None
    pods: tuple[PodFacts, ...] = ()
    closed: float = 0.0  # when the last pod was known to be gone; 0 before

    @property
    def name(self) -> str:
        return record_name(self.job_id, self.restart)


COLLECTOR_MARK = "results-mark"
"""In the state directory: a collector has run, and recognizes its results folder by it."""


def record_name(job_id: int, restart: int) -> str:
    return f"{job_id}-{restart}.json"
