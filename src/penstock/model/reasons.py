"""Why a job does not start yet (Refusal) and how it ended (Outcome), as data.

Code decides by `kind`. model/sentences.py makes sentences only for people: Slurm's comment, the job's
stderr, the command line. docs/reference/reasons.md is made from the tables here.
"""

from __future__ import annotations

import enum

import msgspec


class RefusalKind(enum.StrEnum):
    """Why admission refused a job."""

    API_UNAVAILABLE = "api-unavailable"
    CANCELLED = "cancelled"
    NOT_PREPARED = "not-prepared"
    NODE_UNKNOWN = "node-unknown"
    NODE_NOT_READY = "node-not-ready"
    NODE_CORDONED = "node-cordoned"
    NO_ROOM = "no-room"
    EARLIER_POD = "earlier-pod"
    UNSAFE_ENVIRONMENT = "unsafe-environment"
    UNREADABLE_ENVIRONMENT = "unreadable-environment"


class OutcomeKind(enum.StrEnum):
    """What ended a job."""

    EXITED = "exited"
    OUT_OF_MEMORY = "out-of-memory"
    KILLED = "killed"
    EVICTED = "evicted"
    POD_DELETED = "pod-deleted"
    NODE_LOST = "node-lost"
    REJECTED = "rejected"
    CANNOT_START = "cannot-start"
    MOUNT_FAILED = "mount-failed"
    NO_SHELL = "no-shell"
    CONTAINER_FAILED = "container-failed"
    RANK_ENDED = "rank-ended"
    AGENT_FAILED = "agent-failed"
    START_TIMEOUT = "start-timeout"
    NOT_ALLOWED = "not-allowed"
    NOT_ADMITTED = "not-admitted"
    API_REFUSED = "api-refused"
    NODE_GONE = "node-gone"
    NODE_TAKEN_BACK = "node-taken-back"
    LAUNCH_FAILED = "launch-failed"


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a job cannot start on the nodes of its allocation."""

    kind: RefusalKind
    node: str = ""
    resource: str = ""  # gpu, cpu, memory, or the name of an extended resource
    wanted: str = ""
    free: str = ""
    held_by: tuple[str, ...] = ()  # other pods that have the resource, as namespace/name
    pod: str = ""
    detail: str = ""
    since: float = 0.0  # since when the job has been refused for this reason, in seconds since 1970

    @property
    def is_final(self) -> bool:
        """Whether a retry would not help: the job is cancelled."""
        return self.kind is RefusalKind.UNSAFE_ENVIRONMENT

    def is_same(self, other: Refusal) -> bool:
        """Whether the other is the same refusal at another time."""
        return (self.kind, self.node, self.resource) == (other.kind, other.node, other.resource)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a job: the numbers for Slurm's record, and the cause."""

    kind: OutcomeKind = OutcomeKind.EXITED
    exit_code: int
    signal: int = 0
    detail: str = ""  # one line from Kubernetes, the API or the agent
    rank: int = 0  # of the pod that ended the job, if not the script's
    node: str = ""  # of the rank that did not start, for a gang that was refused
    requeue: bool = False  # the cluster is the cause, not the job: Slurm should run it again
    began: bool = True  # whether the script may have started
    succeeded: bool = False  # the script succeeded; `exit_code` differs because its pod was being deleted
    recorded: str = ""  # the sentence, if the end was read from a record

    def as_asked(self) -> Outcome:
        """The script's own end, if the pod was deleted because Slurm wanted the job to end."""
        if self.kind is not OutcomeKind.POD_DELETED:
            return self
        code = 0 if self.succeeded else self.exit_code
        return Outcome(exit_code=code, signal=self.signal, requeue=self.requeue, began=self.began)

    def of_rank(self, rank: int, node: str = "") -> Outcome:
        """The job's end that follows from this end of another rank's pod."""
        kind, detail = self.kind, self.detail
        if kind is OutcomeKind.EXITED:
            kind, detail = OutcomeKind.RANK_ENDED, str(self.exit_code)
        return Outcome(kind=kind, exit_code=LOST, detail=detail, rank=rank, node=node, requeue=self.requeue)


LOST = 1  # exit code where no container has one
VANISHED = Outcome(kind=OutcomeKind.POD_DELETED, exit_code=LOST)
NODE_LOST = Outcome(kind=OutcomeKind.NODE_LOST, exit_code=LOST, requeue=True)


def not_started(kind: OutcomeKind, detail: str, *, node: str = "", requeue: bool = False) -> Outcome:
    """The end of a job whose pods were not created."""
    return Outcome(kind=kind, exit_code=LOST, detail=detail, node=node, requeue=requeue)


REFUSALS: dict[RefusalKind, tuple[str, str]] = {
    RefusalKind.API_UNAVAILABLE: (
        "The Kubernetes API does not answer, so it is unknown whether there is room.",
        "Tried again when it answers.",
    ),
    RefusalKind.CANCELLED: ("The job was cancelled while it was being admitted.", "Nothing."),
    RefusalKind.NOT_PREPARED: (
        "The job was not submitted through Penstock's job_submit plugin: it was queued before Penstock was "
        "installed, or moved here from another partition.",
        "Cancel and resubmit.",
    ),
    RefusalKind.NODE_UNKNOWN: ("Slurm's node has no node of that name in Kubernetes.", "`penstock nodes`."),
    RefusalKind.NODE_NOT_READY: ("The node is not Ready in Kubernetes.", "Tried again when it is."),
    RefusalKind.NODE_CORDONED: ("The node is cordoned in Kubernetes.", "`kubectl uncordon`."),
    RefusalKind.NO_ROOM: (
        "The node has less of `resource` left than the job was allocated: other pods have it.",
        "Tried again when there is room.",
    ),
    RefusalKind.EARLIER_POD: ("A pod of an earlier attempt of the job is not gone yet.", "Tried again."),
    RefusalKind.UNSAFE_ENVIRONMENT: (
        "A variable of the job's environment would run code on the Slurm node. The job is cancelled.",
        "Resubmit without the variable.",
    ),
    RefusalKind.UNREADABLE_ENVIRONMENT: (
        "PrologSlurmctld cannot read the environment that slurmctld keeps of the job.",
        "An administrator looks at StateSaveLocation.",
    ),
}
"""What each kind means, and what to do."""

OUTCOMES: dict[OutcomeKind, tuple[str, str]] = {
    OutcomeKind.EXITED: ("The script ended by itself.", "its own"),
    OutcomeKind.OUT_OF_MEMORY: ("The container used more memory than its limit (--mem).", "the container's"),
    OutcomeKind.KILLED: ("Somebody outside the job killed the container (SIGKILL).", "137"),
    OutcomeKind.EVICTED: ("The pod was evicted, preempted or shut down with its node.", "requeued"),
    OutcomeKind.POD_DELETED: ("Somebody deleted the job's pod.", "the container's, at least 1"),
    OutcomeKind.NODE_LOST: ("The pod's node left Kubernetes.", "requeued"),
    OutcomeKind.REJECTED: ("The kubelet did not take the pod.", "requeued, unless it never will"),
    OutcomeKind.CANNOT_START: ("The container cannot be made: its image, its configuration.", "1"),
    OutcomeKind.MOUNT_FAILED: ("A folder of #K8S_MOUNT cannot be mounted.", "1"),
    OutcomeKind.NO_SHELL: ("The image has no /bin/sh, which the agent needs.", "1"),
    OutcomeKind.CONTAINER_FAILED: ("The container runtime ended the container.", "the container's"),
    OutcomeKind.RANK_ENDED: ("A pod without the script ended before the job did.", "1"),
    OutcomeKind.AGENT_FAILED: ("The agent could not run the script, and says why.", "the agent's"),
    OutcomeKind.START_TIMEOUT: ("The container did not start in time.", "1"),
    OutcomeKind.NOT_ALLOWED: ("The script asks for something that the site does not allow.", "1"),
    OutcomeKind.NOT_ADMITTED: ("slurmd started the job without admission, and there is no room.", "requeued"),
    OutcomeKind.API_REFUSED: ("The Kubernetes API refused an object of the job.", "1"),
    OutcomeKind.NODE_GONE: ("A node left Kubernetes after the job was admitted there.", "requeued"),
    OutcomeKind.NODE_TAKEN_BACK: ("Slurm took a node of the job back while its pods were being made.", "1"),
    OutcomeKind.LAUNCH_FAILED: ("slurmd could not start the job's launcher.", "Slurm's"),
}
"""What each kind means, and the exit code in Slurm's record."""
