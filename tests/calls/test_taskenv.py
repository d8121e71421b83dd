"""A task's environment in its pod."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.calls import taskenv

BASE = {
    b"PATH": b"/image/bin",
    b"SLURM_JOB_ID": b"17",
    b"SLURM_JOB_NAME": b"train",
    b"SLURM_NTASKS": b"4",
    b"SLURM_PROCID": b"0",
    b"SLURM_TASK_PID": b"99",
    b"SLURM_CONF": b"/etc/slurm/slurm.conf",
    b"CUDA_VISIBLE_DEVICES": b"7",
    b"SLURM_GPUS_ON_NODE": b"4",
    b"SLURM_UMASK": b"0077",
}
GIVEN = {
    b"PATH": b"/usr/bin",
    b"HOME": b"/root",
    b"TMPDIR": b"/tmp",
    b"SLURM_CONF": b"/slurm.conf",
    b"SLURM_JOB_ID": b"17",
    b"SLURM_JOB_NAME": b"python3",
    b"SLURM_JOB_PARTITION": b"gpu",
    b"SLURM_UMASK": b"0022",
    b"SLURM_NTASKS": b"2",
    b"SLURM_PROCID": b"1",
    b"SLURMD_NODENAME": b"n2",
    b"SLURM_STEP_ID": b"3",
    b"SLURM_TASK_PID": b"1234",
    b"SLURM_LAUNCH_NODE_IPADDR": b"127.0.0.1",
    b"SLURM_SRUN_COMM_HOST": b"127.0.0.1",
    b"SLURM_SRUN_COMM_PORT": b"1",
    b"SLURM_STEP_LAUNCHER_PORT": b"1",
    b"SLURM_WORKING_CLUSTER": b"c:127.0.0.1:1:9728:109",
    b"SLURM_MPI_TYPE": b"none",
    b"PMI_FD": b"5",
    b"LD_PRELOAD": b"/x.so",
}


def made(given: Mapping[bytes, bytes] = GIVEN, gpus: tuple[int, ...] = ()) -> dict[bytes, bytes]:
    return taskenv.environment(BASE, given, caller_address=b"10.0.0.5", gpus_of_node=gpus)


def test_environment_of_a_task() -> None:
    """The caller's, with variables of task, node and step over it, and nothing of the Slurm node."""
    assert made() == {
        b"PATH": b"/image/bin",
        b"SLURM_JOB_ID": b"17",
        b"SLURM_JOB_NAME": b"train",
        b"SLURM_JOB_PARTITION": b"gpu",
        b"SLURM_UMASK": b"0077",
        b"SLURM_CONF": b"/etc/slurm/slurm.conf",
        b"CUDA_VISIBLE_DEVICES": b"7",
        b"SLURM_NTASKS": b"2",
        b"SLURM_PROCID": b"1",
        b"SLURMD_NODENAME": b"n2",
        b"SLURM_STEP_ID": b"3",
        b"SLURM_LAUNCH_NODE_IPADDR": b"10.0.0.5",
    }


@pytest.mark.parametrize(
    ("step_gpus", "of_node", "visible"),
    [
        (b"1", (1, 2), b"0"),
        (b"2", (1, 2), b"1"),
        (b"0", (0, 1), b"0"),
        (b"1", (0, 1), b"1"),
        (b"3,1", (1, 2, 3), b"2,0"),
        (b"1,2", (1, 2), None),
        (b"2,1", (1, 2), None),
        (b"5", (1, 2), None),
        (b"", (1, 2), None),
        (b"1", (), None),
    ],
)
def test_gpus_are_counted_as_the_pod_counts_them(
    step_gpus: bytes, of_node: tuple[int, ...], visible: bytes | None
) -> None:
    """By their place among the job's on that node, if the task has fewer; Slurm's own numbers stay."""
    found = made({**GIVEN, b"SLURM_STEP_GPUS": step_gpus, b"SLURM_GPUS_ON_NODE": b"2"}, of_node)
    names = (b"CUDA_VISIBLE_DEVICES", b"ROCR_VISIBLE_DEVICES", b"GPU_DEVICE_ORDINAL", b"ZE_AFFINITY_MASK")
    expected = [BASE.get(name) if visible is None else visible for name in names]
    assert [found.get(name) for name in names] == expected
    assert (found[b"SLURM_STEP_GPUS"], found[b"SLURM_GPUS_ON_NODE"]) == (step_gpus, b"2")


def test_a_step_without_gpus_sees_none() -> None:
    """--gres=none; in a pod that has none nothing is set."""
    found = made(GIVEN, (0, 1))
    assert found[b"CUDA_VISIBLE_DEVICES"] == b""
    assert b"SLURM_GPUS_ON_NODE" not in found
    assert made(GIVEN, ())[b"CUDA_VISIBLE_DEVICES"] == b"7"


def test_gpus_without_numbers_are_left_alone() -> None:
    """Slurm gives none if gres.conf names no devices."""
    assert made({**GIVEN, b"SLURM_GPUS_ON_NODE": b"1"}, (0, 1))[b"CUDA_VISIBLE_DEVICES"] == b"7"
