"""One look at both worlds, as data: what the judges judge.

Two systems cannot be read in one instant. Kubernetes is always read before Slurm, so that a pod in a snapshot
was there before Slurm said what it says; what only the delay between the two readings has made is gone in the
next look (audit/confirmed.py).
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
    """Something that must not be: which invariant, in which way, of what, and how one can see it."""

    invariant: str
    kind: str
    subject: str
    evidence: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Kubernetes, Slurm and, if it could be asked, penstockd."""

    pods: tuple[types.Pod, ...]
    nodes: tuple[types.Node, ...]
    secrets: tuple[types.Secret, ...]
    jobs: Mapping[int, Job]
    closed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Slurm nodes that take no jobs, drained or down, with the reason."""
    daemon: audits.DaemonView | None = None
    """None when penstockd could not be asked: then only what needs no word of it is judged."""

    @cached_property
    def gpu_resources(self) -> frozenset[str]:
        """Other names than the usual one under which GPUs are counted; the rest is none of Slurm's."""
        return frozenset(self.daemon.gpu_resources.values() if self.daemon else ())

    @cached_property
    def ours(self) -> tuple[types.Pod, ...]:
        """Pods of jobs."""
        return tuple(pod for pod in self.pods if podview.job_id(pod) is not None)

    @cached_property
    def pods_by_job(self) -> dict[int, list[types.Pod]]:
        found: dict[int, list[types.Pod]] = {}
        for pod in self.ours:
            found.setdefault(podview.job_id(pod) or 0, []).append(pod)
        return found

    def job_of(self, labels: Mapping[str, str]) -> Job | None:
        """The job that these labels name, if Slurm knows it."""
        job_id = numbers.natural(labels.get(wellknown.LABEL_JOB_ID, ""))
        return None if job_id is None else self.jobs.get(job_id)

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether the attempt of a job that these labels name has a right to objects now."""
        return rights.has_right(labels, self.job_of(labels))

    def is_bridged(self, job: Job) -> bool:
        """Whether the job runs as pods, as far as penstockd has told."""
        return self.daemon is not None and job.partition in self.daemon.bridged_partitions

    def is_trusted(self, job: Job) -> bool:
        """Whether kube-scheduler places its pods, so that no room is promised for it."""
        return self.daemon is not None and job.partition in self.daemon.trusted_partitions


def name_of(pod: types.Pod) -> str:
    """A pod and no other, not even a later one of the same name."""
    meta = pod.metadata
    return f"pod {meta.namespace}/{meta.name} ({meta.uid})"


def in_words(job: Job | None) -> str:
    if job is None:
        return "Slurm does not know the job"
    return f"Slurm: job {job.job_id} is {job.state}, restart {job.identity.restart}"
