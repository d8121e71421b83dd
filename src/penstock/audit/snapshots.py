"""One reading of Kubernetes and Slurm, as data.

The two cannot be read in one instant. Kubernetes is always read first, so every pod of a snapshot is older
than Slurm's answer; artefacts of the delay are gone in the next snapshot (audit/confirmed.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property

import msgspec

from penstock import wellknown
from penstock.judge import rights
from penstock.kube import podview, types
from penstock.model import audits, numbers
from penstock.model.jobs import Job


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A broken invariant: how, on which object, and the evidence."""

    invariant: str
    kind: str
    subject: str
    evidence: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    """State of Kubernetes, Slurm and, if it answered, penstockd."""

    pods: tuple[types.Pod, ...]
    nodes: tuple[types.Node, ...]
    secrets: tuple[types.Secret, ...]
    jobs: Mapping[int, Job]
    closed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Slurm nodes that take no jobs (drained or down), with the reason."""
    daemon: audits.DaemonView | None = None
    """None if penstockd did not answer; judges that need it are skipped."""

    @cached_property
    def gpu_resources(self) -> frozenset[str]:
        """Resource names besides nvidia.com/gpu that count as GPUs in Slurm."""
        return frozenset(self.daemon.gpu_resources.values() if self.daemon else ())

    @cached_property
    def ours(self) -> tuple[types.Pod, ...]:
        return tuple(pod for pod in self.pods if podview.job_id(pod) is not None)

    @cached_property
    def pods_by_job(self) -> dict[int, list[types.Pod]]:
        found: dict[int, list[types.Pod]] = {}
        for pod in self.ours:
            found.setdefault(podview.job_id(pod) or 0, []).append(pod)
        return found

    def job_of(self, labels: Mapping[str, str]) -> Job | None:
        job_id = numbers.natural(labels.get(wellknown.LABEL_JOB_ID, ""))
        return None if job_id is None else self.jobs.get(job_id)

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether the attempt that these labels name holds nodes in Slurm."""
        return rights.has_right(labels, self.job_of(labels))

    def is_bridged(self, job: Job) -> bool:
        return self.daemon is not None and job.partition in self.daemon.bridged_partitions

    def is_trusted(self, job: Job) -> bool:
        """Whether the job's partition is in mode `trust`."""
        return self.daemon is not None and job.partition in self.daemon.trusted_partitions


def name_of(pod: types.Pod) -> str:
    """The pod's name with its uid: unique even if the name is reused."""
    meta = pod.metadata
    return f"pod {meta.namespace}/{meta.name} ({meta.uid})"


def in_words(job: Job | None) -> str:
    if job is None:
        return "Slurm does not know the job"
    return f"Slurm: job {job.job_id} is {job.state}, restart {job.identity.restart}"
