"""What a check of the invariants has to know of Slurm and of penstockd, as plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import msgspec

from penstock.model import jobs, resources
from penstock.model.reasons import OutcomeKind


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Room on a node that penstockd keeps for a job."""

    job_id: int
    restart: int
    node: str
    millicpus: int = 0
    memory: int = 0
    gpus: int = 0
    devices: resources.Devices = ()

    @property
    def amount(self) -> resources.Amount:
        return resources.Amount(
            millicpus=self.millicpus, memory=self.memory, gpus=self.gpus, devices=self.devices
        )


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt of a job ended, as penstockd told its launcher."""

    job_id: int
    restart: int
    exit_code: int
    signal: int = 0
    kind: OutcomeKind = OutcomeKind.EXITED
    reason: str = ""


class DaemonView(msgspec.Struct, frozen=True, kw_only=True):
    """What penstockd believes: its partitions, the room it holds, the latest ends."""

    bridged_partitions: tuple[str, ...] = ()
    trusted_partitions: tuple[str, ...] = ()
    gpu_resources: dict[str, str] = {}
    """Kubernetes' resource names of GRES types whose GPUs are no nvidia.com/gpu."""
    held: tuple[Held, ...] = ()
    ends: tuple[End, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """A job as slurmctld remembers it, with its record if it has ended and its share of each node."""

    live: jobs.LiveJob
    exit_code: int = 0
    signal: int = 0
    comment: str = ""
    shares: tuple[jobs.NodeShare, ...] = ()

    @property
    def job_id(self) -> int:
        return self.live.identity.job_id

    def in_kubernetes(self, gpu_resources: Mapping[str, str]) -> SlurmJob:
        """The job with its GPUs under the resource names that their types have there."""
        shares = tuple(share.in_kubernetes(gpu_resources) for share in self.shares)
        return dataclasses.replace(self, shares=shares)

    def share_of(self, node: str) -> resources.Amount:
        """What Slurm gave it of that node; nothing when it gave none."""
        total = resources.Amount()
        for share in self.shares:
            if share.node == node:
                total += share.amount
        return total
