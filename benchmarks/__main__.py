"""Runs the benchmarks on their own labs and prints a table; exit status 1 if a budget is missed.

python -m benchmarks                    all of them
python -m benchmarks start footprint    some
python -m benchmarks --write            also into docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from rich import console

from benchmarks import bringup, figures, footprint, intake, scale, start, throughput
from penstock_lab import testing

Measure = Callable[[testing.RunningLab], list[figures.Figure]]
SUITES: dict[str, tuple[Measure, tuple[str, ...]]] = {
    "start": (start.measure, ()),
    "throughput": (throughput.measure, ()),
    "footprint": (footprint.measure, ("--cpus", "64", "--memory-gb", "64")),
    "scale": (scale.measure, ()),
    "intake": (intake.measure, ()),
    "lab": (bringup.measure, ("--no-bridge", "--nodes", "1")),
}
REPORT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: make bench writes them -->\n", "<!-- end of figures -->\n"


def run(names: list[str]) -> list[figures.Figure]:
    found: list[figures.Figure] = []
    for name in names:
        measure, options = SUITES[name]
        print(f"penstock: measuring {name}", file=sys.stderr, flush=True)
        with testing.temporary_lab(*options) as lab:
            found += measure(lab)
    return found


def write(found: list[figures.Figure]) -> None:
    """Replace the figures in the document, with date and machine."""
    text = REPORT.read_text()
    head, tail = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    about = f"\n{figures.today()}, {figures.machine()}, `make bench`:\n\n"
    REPORT.write_text(head + about + figures.as_markdown(found) + "\n" + tail)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*SUITES, []], help="which ones; all when none is named")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md, too")
    wanted = parser.parse_args()
    found = run(wanted.names or list(SUITES))
    console.Console(width=170).print(figures.as_table(found))
    if wanted.write:
        write(found)
    sys.exit(any(figure.failed for figure in found))


if __name__ == "__main__":
    main()
