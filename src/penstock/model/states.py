"""The words in which Slurm says how a job or a node is, and the sets of them that decide something.

Slurm's commands say one word of a job: a flag that is set, or else its base state. Of a node scontrol shows
all words, joined by "+". A later release may say a word that is not here; it is in none of the sets.
"""

from __future__ import annotations

import enum


class JobState(enum.StrEnum):
    """How a job is: base states, then flags."""

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
"""A job has its nodes, and Slurm does not take them back."""
HOLDING = AT_WORK | {
    JobState.COMPLETING,
    JobState.SUSPENDED,
    JobState.STAGE_OUT,
    JobState.SIGNALING,
    JobState.STOPPED,
    JobState.RESIZING,
}
"""A job has its nodes."""
PERHAPS_NOT_ADMITTED = frozenset({JobState.CONFIGURING, JobState.COMPLETING})
"""A job has its nodes, but PrologSlurmctld may not have said yes, or have said no."""
BY_ITSELF = frozenset({JobState.COMPLETED, JobState.FAILED})
"""Ends that the script has brought about: Slurm's word is its exit code."""
CODE_COMES_LATER = frozenset({JobState.TIMEOUT, JobState.CANCELLED})
"""Ends that Slurm brings about: the accounting has them first with exit code 0:0."""
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
"""States that are an end."""
ENDING = OVER | {JobState.COMPLETING}
"""Nothing may be started for a job any more."""
SENT_BACK = frozenset({JobState.PENDING, JobState.REQUEUED})
"""What the accounting says, with an end, of an attempt that was sent back to the queue."""


class NodeState(enum.StrEnum):
    """How a node is: base states, then flags; sinfo has shorter words for some of them."""

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
"""Somebody wanted no new jobs on a node."""
OUT_OF_SERVICE = DRAINED | {
    NodeState.DOWN,
    NodeState.FAIL,
    NodeState.FAILING,
    NodeState.NOT_RESPONDING,
    NodeState.POWER_DOWN,
    NodeState.POWERED_DOWN,
    NodeState.POWERING_DOWN,
}
"""A node runs no jobs until somebody sees to it."""
CLOSED = OUT_OF_SERVICE | {
    NodeState.INVAL,
    NodeState.INVALID_REG,
    NodeState.MAINT,
    NodeState.MAINTENANCE,
    NodeState.REBOOT,
    NodeState.REBOOT_ISSUED,
    NodeState.REBOOT_REQUESTED,
}
"""Slurm starts nothing on a node now."""
OPEN = frozenset({NodeState.IDLE, NodeState.MIXED, NodeState.ALLOCATED, NodeState.COMPLETING})
"""Slurm uses a node, unless it is also CLOSED."""


def words_of_node(state: str) -> frozenset[str]:
    """Of MIXED+DRAIN; sinfo and older releases mark some with a sign, as DOWN*."""
    silent = {NodeState.NOT_RESPONDING} if "*" in state else set()
    return frozenset(word.rstrip("*~#!%$@^-") for word in state.split("+")) | silent
