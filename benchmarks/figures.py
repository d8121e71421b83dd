"""A measured figure with its baseline and budget."""

from __future__ import annotations

import datetime
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from rich import table


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measurement. `kept` is None without a budget; a missed goal does not fail the run."""

    what: str
    measured: str
    baseline: str
    ratio: str
    budget: str = "–"
    kept: bool | None = None
    is_goal: bool = False

    @property
    def verdict(self) -> str:
        return {None: "", True: "kept", False: "not yet" if self.is_goal else "MISSED"}[self.kept]

    @property
    def failed(self) -> bool:
        return self.kept is False and not self.is_goal

    @property
    def cells(self) -> tuple[str, ...]:
        return (self.what, self.measured, self.baseline, self.ratio, self.budget, self.verdict)


HEADINGS = ("what", "measured", "baseline in the same run", "ratio", "budget", "")


def as_table(found: list[Figure]) -> table.Table:
    shown = table.Table(*HEADINGS, title="Penstock's costs")
    for figure in found:
        shown.add_row(*figure.cells, style="red" if figure.failed else "")
    return shown


def as_markdown(found: list[Figure]) -> str:
    rows = [HEADINGS, tuple("---" for _ in HEADINGS), *(figure.cells for figure in found)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def machine() -> str:
    """The machine in one line, without its name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"{os.cpu_count()} cores ({model}), {memory} GB, Python {platform.python_version()}"


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()
