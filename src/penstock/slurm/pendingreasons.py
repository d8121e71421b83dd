"""Slurm's pending reasons as sentences; a code that is not here is still shown."""

from __future__ import annotations

_WORDS = {
    "Resources": "waits until enough of its partition's nodes are free",
    "Priority": "waits behind jobs of higher priority",
    "BeginTime": "does not start before its start time, set by --begin or by a requeue",
    "Dependency": "waits for the jobs that --dependency names",
    "DependencyNeverSatisfied": "can never start: a job of --dependency did not end as required; cancel it",
    "JobHeldUser": "is held by its owner: use `scontrol release`",
    "JobHeldAdmin": "is held by an administrator",
    "JobArrayTaskLimit": "waits for other tasks of its array: the %N of --array allows no more at once",
    "Licenses": "waits for licenses",
    "NodeDown": "waits: a node that it asked for is down",
    "ReqNodeNotAvail": "waits: a node that it asked for is down, drained or reserved",
    "PartitionDown": "waits: its partition is down",
    "PartitionInactive": "waits: its partition starts no jobs now",
    "PartitionNodeLimit": "asks for more nodes than its partition allows, or for nodes that are down",
    "PartitionTimeLimit": "asks for more time than its partition allows: lower --time",
    "BadConstraints": "can never start: no node has what it asks for",
    "Reservation": "waits for its reservation",
    "Prolog": "is being prepared",
    "Cleaning": "waits until its earlier attempt is cleaned up",
}
_LIMITS = (
    ("QOS", "waits because of a limit of its quality of service (sacctmgr show qos)"),
    ("Assoc", "waits because of a limit of its user or account (sacctmgr show assoc)"),
    ("Max", "waits because of a limit of its user, account or quality of service"),
)


def words(code: str) -> str:
    """The sentence for a reason code."""
    name = code.partition(",")[0].strip("()")  # ReqNodeNotAvail, UnavailableNodes:n1
    limit = next((text for first, text in _LIMITS if name.startswith(first)), "waits")
    return _WORDS.get(name, limit)
