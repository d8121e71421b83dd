"""One attempt of a job as penstockd saw it: what the collector makes results from.

penstockd has given up root and writes nothing of users'; it leaves this record on the local disk, and the
collector, which can become the user, does the rest. Paths are bytes because they are the user's, and none of
it has to be text.
"""

from __future__ import annotations

import msgspec

from penstock.model.reasons import OutcomeKind


class PodFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as it was last seen."""

    name: str
    namespace: str
    rank: int
    node: str
    image: str = ""
    image_id: str = ""
    """What the node's container runtime calls the image: with its digest, on real clusters."""
    started: str = ""
    ended: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    """The container's last words; the agent puts what the job used there."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What the attempt had of one node."""

    node: str
    millicpus: int
    memory: int
    gpus: int


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How the job's process ended, as the launcher was told."""

    at: float
    exit_code: int
    signal: int = 0
    kind: OutcomeKind = OutcomeKind.EXITED
    reason: str = ""
    """In words; empty when it is the script's own doing."""
    requeue: bool = False
    """The cluster's doing: Slurm was to run it again."""
    untold: bool = False
    """slurmctld did not take the reason: the accounting does, once the job has ended."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, from its launch until its last pod was gone."""

    job_id: int
    restart: int
    uid: int
    token: str
    """Told nobody while the job runs, so that nobody can be there before it."""
    launched: float
    partition: str
    qos: str = ""
    submission: str = ""
    """Of the job, see model.jobs: Slurm may give its number to another one later."""
    shown_id: str = ""
    """What slurmctld calls the job: 20_3 for a task of an array. The accounting may learn that much later."""
    shares: tuple[Share, ...] = ()
    image: str = ""
    workdir: bytes = b""
    """Where the script ran; in the pod alone unless it is shared."""
    lost_workdir: bytes = b""
    """Where it should have run, and pods do not see; empty when they do."""
    workdir_is_shared: bool = False
    stdout: bytes = b""
    stderr: bytes = b""
    outputs: tuple[str, ...] = ()
    outputs_left: tuple[str, ...] = ()
    """Patterns that are not collected: they would name files of the array's other tasks."""
    output_dir: str = ""
    """Where $PENSTOCK_OUTPUT_DIR points to; empty when pods cannot see the results folder, or nobody
    collects.
    """
    uncollected: bool = False
    """No collector had ever been at work when the job began: nobody had made a place for output folders."""
    own_entrypoint: bool = False
    unlaunched: bool = False
    """slurmd could not even start the launcher: there never was a pod."""
    end: End | None = None
    pods: tuple[PodFacts, ...] = ()
    closed: float = 0.0
    """When the last pod was known to be gone; 0 before."""

    @property
    def name(self) -> str:
        """Of its record's file."""
        return record_name(self.job_id, self.restart)


COLLECTOR_MARK = "results-mark"
"""In the state directory: a collector has been at work, and knows its results folder by it."""


def record_name(job_id: int, restart: int) -> str:
    return f"{job_id}-{restart}.json"
