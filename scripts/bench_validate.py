"""Benchmark of `penstock validate`: start-up, and 1,000 scripts in one call, on one core.

Scripts are those of the corpus beside the project if it exists, else made-up ones; they are copied to a
temporary folder until there are enough. Prints the measurements, as JSON with --json, and exits with status
1 if a target is missed.

The best of many runs counts, since it is the cost of the program; the median includes the machine's other
load. Both are shown, with Python's own start, measured alternately, to compare machines.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).parents[1]
CORPUS = PROJECT.parent / "shared" / "corpus"
SCRIPTS = 1000
ROUNDS = 25
ROUNDS_OF_ALL = 5
START_MS = 60
ALL_S = 1.0
ONE = b"""#!/bin/bash
#SBATCH --job-name=train --nodes=2 --ntasks-per-node=4
#SBATCH --cpus-per-task=8 --gres=gpu:4 --mem=64G --time=1-12:00:00
#SBATCH --output=%x-%j.out
#K8S_IMAGE=registry.example:5000/team/train:1.2
srun python train.py
"""


def samples() -> list[bytes]:
    """Scripts of the corpus, or a made-up one."""
    found = [
        path.read_bytes() for path in sorted(CORPUS.rglob("*")) if path.is_file() and path.suffix != ".csv"
    ]
    return found or [ONE]


def in_turns(*commands: list[str], rounds: int) -> list[list[float]]:
    """Seconds of every run of every command, on one core, alternating so that all have the same load."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times: list[list[float]] = [[] for _ in commands]
    for argv in commands:  # warm-up: compiles modules
        _once(argv, environment)
    for _ in range(rounds):
        for argv, taken in zip(commands, times, strict=True):
            taken.append(_once(argv, environment))
    return times


def _once(argv: list[str], environment: dict[str, str]) -> float:
    """Reads the output to its end: without a pipe, subprocess polls for the exit every 50 ms only."""
    start = time.perf_counter()
    subprocess.run(
        argv, env=environment, stdout=subprocess.PIPE, check=False, timeout=60, preexec_fn=_one_core
    )
    return time.perf_counter() - start


def _one_core() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def measure() -> dict[str, float]:
    """Measure start-up and throughput, and Python's own start."""
    command = [str(Path(sys.executable).with_name("penstock")), "validate", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        scripts = samples()
        for number in range(SCRIPTS):
            (Path(folder) / f"{number:04d}.sh").write_bytes(scripts[number % len(scripts)])
        single = Path(folder) / "0000.sh"
        bare, one = in_turns([sys.executable, "-c", "pass"], [*command, str(single)], rounds=ROUNDS)
        (every,) = in_turns([*command, folder], rounds=ROUNDS_OF_ALL)
    return {
        "python_start_ms": round(min(bare) * 1000, 1),
        "validate_one_ms": round(min(one) * 1000, 1),
        "validate_one_median_ms": round(statistics.median(one) * 1000, 1),
        "times_python_start": round(min(one) / min(bare), 2),
        "scripts": SCRIPTS,
        "validate_all_s": round(min(every), 3),
        "validate_all_median_s": round(statistics.median(every), 3),
    }


def missed(measured: dict[str, float]) -> list[str]:
    """The missed targets, as messages."""
    found = []
    if measured["validate_one_ms"] > START_MS:
        found.append(f"one script took {measured['validate_one_ms']} ms, more than {START_MS}")
    if measured["validate_all_s"] > ALL_S:
        found.append(f"{SCRIPTS} scripts took {measured['validate_all_s']} s, more than {ALL_S}")
    return found


def main() -> None:
    measured = measure()
    if "--json" in sys.argv[1:]:
        print(json.dumps(measured))
    else:
        for name, value in measured.items():
            print(f"{name:22} {value}")
    faults = missed(measured)
    for fault in faults:
        print(f"target missed: {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
