"""Properties of a running Slurm."""

from __future__ import annotations

import dataclasses

from penstock.model import releases


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlurmFacts:
    cluster: str
    release: releases.Release
    default_partition: str = ""
    appends: bool = False
    """JobFileAppend: whether output files are appended to unless a job says otherwise."""
    requeues: bool = True
    """JobRequeue: whether jobs without --requeue or --no-requeue may be requeued."""
