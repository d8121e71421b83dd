"""GPU rules that sbatch has and no manual tells, each seen on sbatch 22.05.8."""

from __future__ import annotations

import pytest

from penstock.sbatch import compiler


@pytest.mark.parametrize(
    ("options", "accepted"),
    [
        ("--ntasks=1 --ntasks-per-gpu=2", True),
        ("--ntasks=1 --ntasks-per-gpu=2 --cpus-per-gpu=1", False),
        ("--ntasks=1 --ntasks-per-gpu=2 --mem-per-gpu=100", False),
        ("--ntasks=2 --ntasks-per-gpu=2 --cpus-per-gpu=1", True),
        ("--ntasks=3 --ntasks-per-gpu=2", False),
        ("--ntasks=3 --ntasks-per-gpu=2 --gpus=2", True),
        ("--ntasks-per-gpu=2 --cpus-per-gpu=1", False),
    ],
)
def test_tasks_per_gpu_must_count_up_once_anything_is_counted_by_gpu(options: str, accepted: bool) -> None:
    """Too few tasks for one GPU pass in silence, unless CPUs or memory are asked for by the GPU."""
    script = f"#!/bin/sh\n#SBATCH {options}\ntrue\n".encode()
    assert compiler.compile_script(script, name="s.sh").ok == accepted
