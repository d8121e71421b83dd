"""Measures the intake on a lab of its own, against plain sbatch in the same run.

latency   from a file that is renamed into the drop folder to its job's number, one file a second
drain     1,000 files renamed into the folder at once, until the last has become a job
sbatch    the same script submitted by hand, one after the other
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from penstock.lab import testing

SCRIPT = "#!/bin/bash\n#SBATCH --partition=host --hold\ntrue\n"
MAKE = """
import pathlib, sys
for name in sys.stdin.read().split():
    pathlib.Path(sys.argv[1], name).write_text(sys.argv[2])
"""
MOVE = """
import pathlib, sys
for name in sys.stdin.read().split():
    pathlib.Path(sys.argv[1], name).rename(pathlib.Path(sys.argv[2], name))
"""


def drop(lab: testing.RunningLab, names: list[str]) -> float:
    """Write the files elsewhere, rename them into submit/; when the renaming began."""
    aside = lab.home / "bench"
    lab.run_as_user(("mkdir", "-p", str(aside)))
    words = "\n".join(names)
    lab.run_as_user(("python3", "-c", MAKE, str(aside), SCRIPT), stdin=words)
    began = time.monotonic()
    lab.run_as_user(("python3", "-c", MOVE, str(aside), str(lab.place.nas_submit)), stdin=words)
    return began


def processed(lab: testing.RunningLab) -> list[Path]:
    return list((lab.place.nas_drop / "processed").glob("*/*"))


def wait_for(lab: testing.RunningLab, count: int, *, seconds: float) -> float:
    """When that many files are in processed/."""
    deadline = time.monotonic() + seconds
    while len(processed(lab)) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {len(processed(lab))} of {count} files became jobs in {seconds:g} s")
        time.sleep(0.01)
    return time.monotonic()


def latencies(lab: testing.RunningLab, count: int) -> list[float]:
    found = []
    for number in range(count):
        before = len(processed(lab))
        began = drop(lab, [f"single-{number}.sh"])
        found.append(wait_for(lab, before + 1, seconds=60) - began)
        time.sleep(max(0.0, 1.0 - found[-1]))
    return found


def sbatch_rate(lab: testing.RunningLab, count: int) -> float:
    began = time.monotonic()
    loop = (
        f"for n in $(seq {count}); do sbatch --parsable -p host --hold --wrap true >/dev/null || exit 1; done"
    )
    lab.run_as_user(("sh", "-c", loop), timeout=300)
    return count / (time.monotonic() - began)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=1000)
    options.add_argument("--samples", type=int, default=60)
    chosen = options.parse_args()
    with testing.temporary_lab() as lab:
        print(
            f"sbatch       {sbatch_rate(lab, 200):.0f} submissions/s by hand, one after the other", flush=True
        )
        single = sorted(latencies(lab, chosen.samples))
        p99 = statistics.quantiles(single, n=100)[98] if len(single) > 1 else single[0]
        print(
            f"latency      {statistics.median(single) * 1000:.0f} ms median, {p99 * 1000:.0f} ms p99, ",
            end="",
        )
        print(
            f"{single[-1] * 1000:.0f} ms worst of {len(single)} files at 1/s (target: p99 below 1000)",
            flush=True,
        )
        before = len(processed(lab))
        began = drop(lab, [f"many-{number}.sh" for number in range(chosen.files)])
        seconds = wait_for(lab, before + chosen.files, seconds=300) - began
        rate = chosen.files / seconds
        print(f"drain        {chosen.files} files in {seconds:.1f} s: {rate:.0f}/s (target: 50)")
        lab.run(("scancel", f"--user={lab.user}"))


if __name__ == "__main__":
    main()
