"""Amounts of a job on a single node.

Slurm distributes tasks to nodes only when it starts the job. The *least* is what the fullest node needs in
every distribution; the *even share* is a pod's request if tasks are spread evenly, as `explain` shows it.
"""

from __future__ import annotations

import msgspec

from penstock.model.jobspec import JobSpec


class Footprint(msgspec.Struct, frozen=True):
    """Amounts on one node; memory 0: not requested."""

    cpus: int
    memory_mib: int
    gpus: int
    tasks: int = 1


def least_per_node(job: JobSpec) -> Footprint:
    """What at least one node must have, however Slurm distributes the job."""
    return _on(job, _most_nodes(job))


def even_share(job: JobSpec) -> Footprint:
    """The request of each pod if the job gets its minimum of nodes."""
    return _on(job, max(job.nodes.minimum, 1))


def gpus_in_all(job: JobSpec) -> int:
    """Those of --gpus, on all nodes."""
    return sum(gres.count for gres in job.gres.per_job if gres.name == "gpu")


def gpus_by_type(job: JobSpec) -> dict[str, int]:
    """GPUs of an even share, by those types that the job names."""
    nodes, tasks = max(job.nodes.minimum, 1), even_share(job).tasks
    names = {gres.type for gres in job.gres.everything if gres.name == "gpu" and gres.type}
    return {name: _gpus(job, nodes, tasks, name) for name in sorted(names)}


def _most_nodes(job: JobSpec) -> int:
    """Slurm allocates no node without a task, or, if tasks are not given, without a GPU."""
    tasks = job.provenance.get("tasks")
    counted = tasks is None or tasks.origin != "default"
    useful = max(job.tasks if counted else gpus_in_all(job), job.nodes.minimum, 1)
    return min(job.nodes.maximum or useful, useful)


def _on(job: JobSpec, nodes: int) -> Footprint:
    tasks = max(-(-job.tasks // nodes), job.tasks_per_node, 1)
    gpus = _gpus(job, nodes, tasks)
    cpus = max(-(-job.cpus // nodes), job.cpus_per_task, job.min_cpus_per_node, job.cpus_per_gpu * gpus)
    return Footprint(cpus, _memory(job, cpus, gpus), gpus, tasks)


def _gpus(job: JobSpec, nodes: int, tasks: int, only: str = "") -> int:
    """GPUs on one node; with `only`, of that type."""
    per_node, per_task, per_job, per_socket = (
        sum(gres.count for gres in wanted if gres.name == "gpu" and only in ("", gres.type))
        for wanted in (job.gres.per_node, job.gres.per_task, job.gres.per_job, job.gres.per_socket)
    )
    return max(per_node, per_task * tasks, -(-per_job // nodes), per_socket)


def _memory(job: JobSpec, cpus: int, gpus: int) -> int:
    if job.memory is None:
        return 0
    factor = {"node": 1, "cpu": cpus, "gpu": gpus}[job.memory.scope]
    return job.memory.mib * factor
