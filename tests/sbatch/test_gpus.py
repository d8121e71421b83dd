"""Undocumented GPU rules, tested on sbatch 22.05.8."""

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
def test_tasks_per_gpu_with_too_few_tasks(options: str, accepted: bool) -> None:
    """Accepted silently, unless CPUs or memory are requested per GPU."""
    script = f"#!/bin/sh\n#SBATCH {options}\ntrue\n".encode()
    assert compiler.compile_script(script, name="s.sh").ok == accepted
