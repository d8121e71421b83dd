"""What all services share: clients of Slurm and Kubernetes, caches, settings and the store of jobs."""

from __future__ import annotations

import dataclasses
import time as unix_time
from collections.abc import Callable

from penstock import clock
from penstock.bridge import jobstore, protocols, slurmfacts
from penstock.kube import reflectors, types
from penstock.model.podpolicy import PodPolicy
from penstock.render import pods as rendering


@dataclasses.dataclass(kw_only=True)
class Context:
    slurm: protocols.Slurm
    kube: protocols.Kube
    pods: reflectors.Reflector[types.Pod]
    nodes: reflectors.Reflector[types.Node]
    settings: PodPolicy
    time: clock.Clock
    meter: protocols.Meter
    wall_clock: Callable[[], float] = unix_time.time
    store: jobstore.Store = dataclasses.field(init=False)
    slurm_facts: slurmfacts.CachedFacts = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.slurm_facts = slurmfacts.CachedFacts(self.slurm, self.time)
        self.store = jobstore.Store(self.wall_clock)

    @property
    def cluster(self) -> str:
        """Slurm's ClusterName as a label value."""
        return rendering.label_of(self.settings.cluster)

    @property
    def is_fresh(self) -> bool:
        """Whether the caches of pods and nodes are fresh."""
        return self.pods.fresh and self.nodes.fresh
