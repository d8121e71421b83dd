"""The time that `penstock lab up` takes."""

from __future__ import annotations

import time

from benchmarks import figures
from penstock_lab import testing

BUDGET = 15.0
SAMPLES = 3


def measure(_: testing.RunningLab) -> list[figures.Figure]:
    """The best of several runs, to exclude the machine's other load."""
    took = min(_seconds_to_come_up() for _ in range(SAMPLES))
    return [
        figures.Figure(
            what="lab: `penstock lab up`, four nodes",
            measured=f"{took:.1f} s",
            baseline="–",
            ratio="–",
            budget=f"< {BUDGET:.0f} s",
            kept=took < BUDGET,
        )
    ]


def _seconds_to_come_up() -> float:
    place = testing.new_place()
    began = time.monotonic()
    try:
        testing.up(place)
        return time.monotonic() - began
    finally:
        testing.lab_command(place, "down", "--force")
