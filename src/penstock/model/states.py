"""Slurm's states of jobs and nodes, and the sets of them that decide something.

Slurm's commands print one state of a job: a flag that is set, or else its base state. scontrol shows all
states of a node, joined by "+". A later release may have other states; they are in none of the sets.
"""

from __future__ import annotations

import enum


class JobState(enum.StrEnum):
    """Base states, then flags."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"

    COMPLETING = "COMPLETING"
    CONFIGURING = "CONFIGURING"
    EXPEDITING = "EXPEDITING"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    POWER_UP_NODE = "POWER_UP_NODE"
    RECONFIG_FAIL = "RECONFIG_FAIL"
    REQUEUED = "REQUEUED"
    REQUEUE_FED = "REQUEUE_FED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    RESIZING = "RESIZING"
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    REVOKED = "REVOKED"
    SIGNALING = "SIGNALING"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    STAGE_OUT = "STAGE_OUT"
    STOPPED = "STOPPED"
    UPDATE_DB = "UPDATE_DB"


AT_WORK = frozenset({JobState.RUNNING, JobState.CONFIGURING})
"""The job has its nodes, and Slurm does not take them back."""
HOLDING = AT_WORK | {
    JobState.COMPLETING,
    JobState.SUSPENDED,
    JobState.STAGE_OUT,
    JobState.SIGNALING,
    JobState.STOPPED,
    JobState.RESIZING,
}
"""The job has its nodes."""
PERHAPS_NOT_ADMITTED = frozenset({JobState.CONFIGURING, JobState.COMPLETING})
"""The job has its nodes, but PrologSlurmctld may not have answered, or has refused."""
BY_ITSELF = frozenset({JobState.COMPLETED, JobState.FAILED})
"""Ends that the script caused: Slurm's record has its exit code."""
CODE_COMES_LATER = frozenset({JobState.TIMEOUT, JobState.CANCELLED})
"""Ends that Slurm caused: the accounting first has exit code 0:0."""
OVER = (
    BY_ITSELF
    | CODE_COMES_LATER
    | {
        JobState.PREEMPTED,
        JobState.NODE_FAIL,
        JobState.BOOT_FAIL,
        JobState.DEADLINE,
        JobState.OUT_OF_MEMORY,
        JobState.REVOKED,
    }
)
"""The job has ended."""
ENDING = OVER | {JobState.COMPLETING}  # nothing may be started for the job any more
SENT_BACK = frozenset({JobState.PENDING, JobState.REQUEUED})
"""The accounting's states for the end of an attempt that was requeued."""


class NodeState(enum.StrEnum):
    """Base states, then flags; sinfo abbreviates some of them."""

    ALLOCATED = "ALLOCATED"
    DOWN = "DOWN"
    ERROR = "ERROR"
    FUTURE = "FUTURE"
    IDLE = "IDLE"
    MIXED = "MIXED"
    UNKNOWN = "UNKNOWN"

    BLOCKED = "BLOCKED"
    CLOUD = "CLOUD"
    COMPLETING = "COMPLETING"
    DRAIN = "DRAIN"
    DRAINED = "DRAINED"
    DRAINING = "DRAINING"
    DYNAMIC_FUTURE = "DYNAMIC_FUTURE"
    DYNAMIC_NORM = "DYNAMIC_NORM"
    EXTERNAL = "EXTERNAL"
    FAIL = "FAIL"
    FAILING = "FAILING"
    INVAL = "INVAL"
    INVALID_REG = "INVALID_REG"
    MAINT = "MAINT"
    MAINTENANCE = "MAINTENANCE"
    NOT_RESPONDING = "NOT_RESPONDING"
    PERFCTRS = "PERFCTRS"
    PLANNED = "PLANNED"
    POWER_DOWN = "POWER_DOWN"
    POWER_DRAIN = "POWER_DRAIN"
    POWER_UP = "POWER_UP"
    POWERED_DOWN = "POWERED_DOWN"
    POWERING_DOWN = "POWERING_DOWN"
    POWERING_UP = "POWERING_UP"
    REBOOT = "REBOOT"
    REBOOT_CANCELED = "REBOOT_CANCELED"
    REBOOT_ISSUED = "REBOOT_ISSUED"
    REBOOT_REQUESTED = "REBOOT_REQUESTED"
    RESERVED = "RESERVED"


DRAINED = frozenset({NodeState.DRAIN, NodeState.DRAINED, NodeState.DRAINING, NodeState.POWER_DRAIN})
"""No new jobs on the node, on somebody's request."""
OUT_OF_SERVICE = DRAINED | {
    NodeState.DOWN,
    NodeState.FAIL,
    NodeState.FAILING,
    NodeState.NOT_RESPONDING,
    NodeState.POWER_DOWN,
    NodeState.POWERED_DOWN,
    NodeState.POWERING_DOWN,
}
"""The node runs no jobs until an administrator acts."""
CLOSED = OUT_OF_SERVICE | {
    NodeState.INVAL,
    NodeState.INVALID_REG,
    NodeState.MAINT,
    NodeState.MAINTENANCE,
    NodeState.REBOOT,
    NodeState.REBOOT_ISSUED,
    NodeState.REBOOT_REQUESTED,
}
"""Slurm starts nothing on the node now."""
OPEN = frozenset({NodeState.IDLE, NodeState.MIXED, NodeState.ALLOCATED, NodeState.COMPLETING})
"""Slurm uses the node, unless it is also CLOSED."""


def words_of_node(state: str) -> frozenset[str]:
    """The states in MIXED+DRAIN; sinfo and older releases add a sign to some, as in DOWN*."""
    silent = {NodeState.NOT_RESPONDING} if "*" in state else set()
    return frozenset(word.rstrip("*~#!%$@^-") for word in state.split("+")) | silent
