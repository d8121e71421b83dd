"""What a check of the invariants needs to know of penstockd."""

from __future__ import annotations

import msgspec

from penstock.model import resources
from penstock.model.reasons import OutcomeKind


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation of penstockd's on a node."""

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
    """How an attempt ended, as penstockd told its launcher."""

    job_id: int
    restart: int
    exit_code: int
    signal: int = 0
    kind: OutcomeKind = OutcomeKind.EXITED
    reason: str = ""


class DaemonView(msgspec.Struct, frozen=True, kw_only=True):
    """penstockd's partitions, its reservations, and the latest ends."""

    bridged_partitions: tuple[str, ...] = ()
    trusted_partitions: tuple[str, ...] = ()
    gpu_resources: dict[str, str] = {}  # resource names of GRES types whose GPUs are not nvidia.com/gpu
    held: tuple[Held, ...] = ()
    ends: tuple[End, ...] = ()
