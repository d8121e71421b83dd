"""How fast `penstock validate` is: start-up, and 1,000 scripts in one call, on one core.

Scripts are those of the corpus beside the project where it is there, else made up ones of the same kind;
they are copied to a temporary folder under new names until there are enough. Prints what it measured, as
JSON with --json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).parents[1]
CORPUS = PROJECT.parent / "shared" / "corpus"
SCRIPTS = 1000
ROUNDS = 7
ONE = b"""#!/bin/bash
#SBATCH --job-name=train --nodes=2 --ntasks-per-node=4
#SBATCH --cpus-per-task=8 --gres=gpu:4 --mem=64G --time=1-12:00:00
#SBATCH --output=%x-%j.out
#K8S_IMAGE=registry.example:5000/team/train:1.2
srun python train.py
"""


def samples() -> list[bytes]:
    """Real scripts, or one like them."""
    found = [
        path.read_bytes() for path in sorted(CORPUS.rglob("*")) if path.is_file() and path.suffix != ".csv"
    ]
    return found or [ONE]


def seconds(argv: list[str]) -> float:
    """The best of some runs, on one core, with compiled modules in place."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run(
            argv, env=environment, stdout=subprocess.DEVNULL, check=False, timeout=60, preexec_fn=_one_core
        )
        best = min(best, time.perf_counter() - start)
    return best


def _one_core() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def main() -> None:
    """Measure and print."""
    command = [str(Path(sys.executable).with_name("penstock")), "validate", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        scripts = samples()
        for number in range(SCRIPTS):
            (Path(folder) / f"{number:04d}.sh").write_bytes(scripts[number % len(scripts)])
        single = Path(folder) / "0000.sh"
        measured = {
            "python_start_ms": round(seconds([sys.executable, "-c", "pass"]) * 1000, 1),
            "validate_one_ms": round(seconds([*command, str(single)]) * 1000, 1),
            "scripts": SCRIPTS,
            "validate_all_s": round(seconds([*command, folder]), 3),
        }
    if "--json" in sys.argv[1:]:
        print(json.dumps(measured))
        return
    for name, value in measured.items():
        print(f"{name:16} {value}")


if __name__ == "__main__":
    main()
