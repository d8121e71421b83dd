"""Properties of a running Slurm."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlurmFacts:
    release: str
    """Such as 22.05."""
    default_partition: str = ""
    requeues: bool = True
    """JobRequeue: whether jobs without --requeue or --no-requeue may be requeued."""
