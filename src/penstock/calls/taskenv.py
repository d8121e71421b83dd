"""The environment of one task in its pod: what the step's tasks begin with, and over it what slurmstepd told
penstock-task of this task, its node and its step.

Nothing else of penstock-task's environment is taken: it belongs to the Slurm node and to the real srun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.model import numbers

_OF_THE_TASK: Final = frozenset(
    b"""
    SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURMD_NODENAME SLURM_GTIDS SLURM_CPUS_ON_NODE
    SLURM_TOPOLOGY_ADDR SLURM_TOPOLOGY_ADDR_PATTERN SLURM_STEP_ID SLURM_STEPID SLURM_STEP_NODELIST
    SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE SLURM_NTASKS SLURM_NPROCS
    SLURM_NNODES SLURM_TASKS_PER_NODE SLURM_NTASKS_PER_NODE SLURM_NTASKS_PER_CORE
    SLURM_NTASKS_PER_SOCKET SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_TRES SLURM_CPUS_PER_TASK
    SLURM_THREADS_PER_CORE SLURM_TRES_PER_TASK SLURM_DISTRIBUTION SLURM_DIST_PLANESIZE SLURM_CPU_BIND
    SLURM_CPU_BIND_LIST SLURM_CPU_BIND_TYPE SLURM_CPU_BIND_VERBOSE SLURM_MEM_BIND SLURM_MEM_BIND_LIST
    SLURM_MEM_BIND_PREFER SLURM_MEM_BIND_SORT SLURM_MEM_BIND_TYPE SLURM_MEM_BIND_VERBOSE
    SLURM_CPU_FREQ_REQ SLURM_OVERCOMMIT SLURM_OOM_KILL_STEP SLURM_LABELIO SLURMD_TRES_BIND
    SLURMD_TRES_FREQ SLURM_PRIO_PROCESS SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0 SLURM_TRES_BIND SLURM_GPUS
    SLURM_GPUS_PER_NODE SLURM_GPUS_PER_SOCKET SLURM_GPUS_PER_TASK SLURM_GPU_BIND SLURM_GPU_FREQ
    SLURM_CPUS_PER_GPU SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE
    """.split()
)
"""These win over the caller's."""

_OF_THE_JOB: Final = frozenset(
    b"""
    SLURM_JOB_ID SLURM_JOBID SLURM_JOB_UID SLURM_JOB_USER SLURM_JOB_GID SLURM_JOB_GROUP
    SLURM_JOB_NODELIST SLURM_NODELIST SLURM_JOB_NUM_NODES SLURM_JOB_PARTITION SLURM_JOB_ACCOUNT
    SLURM_JOB_QOS SLURM_JOB_RESERVATION SLURM_JOB_LICENSES SLURM_JOB_START_TIME SLURM_JOB_END_TIME
    SLURM_JOB_SLUID SLURM_JOB_SEGMENT_SIZE SLURM_JOB_CPUS_PER_NODE SLURM_CLUSTER_NAME SLURM_UMASK
    """.split()
)
"""These are as the caller has them; srun gives them to tasks of a caller who has not."""

_OF_GPUS: Final = (b"SLURM_STEP_GPUS", b"SLURM_GPUS_ON_NODE", b"SLURM_SHARDS_ON_NODE")
"""A step without GPUs has none of these."""

_VISIBLE: Final = (
    b"CUDA_VISIBLE_DEVICES",
    b"ROCR_VISIBLE_DEVICES",
    b"GPU_DEVICE_ORDINAL",
    b"ZE_AFFINITY_MASK",
)

_NOT_IN_PODS: Final = (
    b"SLURM_TASK_PID",
    b"SLURM_SRUN_COMM_HOST",
    b"SLURM_SRUN_COMM_PORT",
    b"SLURM_STEP_LAUNCHER_PORT",
    b"SLURM_MPI_TYPE",
)
"""Of the Slurm node or the real srun. SLURM_TASK_PID is set where the task's process is known, and srun
drops SLURM_MPI_TYPE when it starts tasks without MPI."""


def environment(
    base: Mapping[bytes, bytes],
    given: Mapping[bytes, bytes],
    *,
    caller_address: bytes,
    gpus_of_node: Sequence[int],
) -> dict[bytes, bytes]:
    """A task's environment.

    `given` is penstock-task's, `caller_address` that of the pod in which srun was typed, and `gpus_of_node`
    the job's GPUs on this task's node, by Slurm's numbers in Slurm's order.
    """
    found = {name: given[name] for name in _OF_THE_JOB if name in given}
    found |= base
    for name in (*_NOT_IN_PODS, *_OF_GPUS):
        found.pop(name, None)
    found |= {name: value for name, value in given.items() if name in _OF_THE_TASK or name in _OF_GPUS}
    found[b"SLURM_LAUNCH_NODE_IPADDR"] = caller_address
    visible = visible_gpus(given, gpus_of_node)
    return found if visible is None else found | dict.fromkeys(_VISIBLE, visible)


def visible_gpus(given: Mapping[bytes, bytes], gpus_of_node: Sequence[int]) -> bytes | None:
    """The task's GPUs as the pod counts them, from 0; None if they are all of the pod's, or Slurm does not
    say.

    Slurm says nothing of GPUs whose File= in gres.conf is no device: only their number is known then.
    """
    if not gpus_of_node:
        return None
    text = given.get(b"SLURM_STEP_GPUS")
    if text is None:
        return None if numbers.natural(given.get(b"SLURM_GPUS_ON_NODE", b"")) else b""
    mine = [numbers.natural(index) for index in text.split(b",")]
    places = {index: place for place, index in enumerate(gpus_of_node)}
    if not all(index in places for index in mine):
        return None
    if len(set(mine)) == len(places):
        return None
    return b",".join(b"%d" % places[index] for index in mine if index is not None)
