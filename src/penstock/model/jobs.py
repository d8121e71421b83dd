"""A job as Slurm allocated it: what penstockd needs to turn it into pods. Numbers and node names only, no
text of the user's.
"""

from __future__ import annotations

import dataclasses

from penstock.model import resources


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobIdentity:
    """One attempt of one job of one user: what Slurm itself told PrologSlurmctld, or squeue tells us."""

    job_id: int
    restart: int
    uid: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeShare:
    """A job's share of one node."""

    node: str
    amount: resources.Amount


@dataclasses.dataclass(frozen=True, kw_only=True)
class Allocation:
    """Where an attempt of a job runs; the order of the nodes is the order of ranks."""

    identity: JobIdentity
    shares: tuple[NodeShare, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LiveJob:
    """A line of squeue: a job that Slurm still knows."""

    identity: JobIdentity
    state: str
    partition: str

    @property
    def holds_resources(self) -> bool:
        """While this is so its pods have a right to be there."""
        return self.state in {
            "RUNNING",
            "CONFIGURING",
            "COMPLETING",
            "SUSPENDED",
            "STAGE_OUT",
            "SIGNALING",
            "STOPPED",
            "RESIZING",
        }
