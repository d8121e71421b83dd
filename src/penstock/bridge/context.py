"""What all steps of the protocol share: both systems, what is known of them, and the store of jobs."""

from __future__ import annotations

import dataclasses
import time as unix_time
from collections.abc import Callable

from penstock import clock
from penstock.bridge import jobstore, protocols
from penstock.kube import reflectors, types
from penstock.model.podpolicy import PodPolicy
from penstock.render import pods as rendering


@dataclasses.dataclass(kw_only=True)
class Context:
    """One penstockd's surroundings."""

    slurm: protocols.Slurm
    kube: protocols.Kube
    pods: reflectors.Reflector[types.Pod]
    nodes: reflectors.Reflector[types.Node]
    settings: PodPolicy
    time: clock.Clock
    meter: protocols.Meter
    wall_clock: Callable[[], float] = unix_time.time
    store: jobstore.Store = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.store = jobstore.Store(self.wall_clock)

    @property
    def cluster(self) -> str:
        """Slurm's name of the cluster, as our pods are labelled with it."""
        return rendering.label_of(self.settings.cluster)

    @property
    def is_fresh(self) -> bool:
        """Whether the caches of pods and nodes can be relied upon."""
        return self.pods.fresh and self.nodes.fresh
