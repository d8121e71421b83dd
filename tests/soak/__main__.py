"""`make soak MINUTES=10 [SEED=…]`: the random test on its own lab; prints a table, exits 1 on any failure."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from pathlib import Path

import click
from rich import console, table

from penstock_lab import testing
from tests.soak import running


@click.command()
@click.option("--minutes", type=float, default=10.0, show_default=True)
@click.option("--seed", type=int, default=None, help="Of an earlier storm, to have it again.")
@click.option("--events", type=click.Path(path_type=Path), default=None, help="Where the event log goes.")
@click.option(
    "--once", is_flag=True, help="Jobs that may not run twice, and nothing that ends them but scancel."
)
def main(minutes: float, seed: int | None, events: Path | None, once: bool) -> None:
    """Random jobs, outages and faults, with the invariants checked throughout."""
    chosen = random.SystemRandom().randrange(10**6) if seed is None else seed
    log = events or Path(tempfile.gettempdir()) / f"penstock-soak-{chosen}.jsonl"
    click.echo(f"seed {chosen}, {minutes:g} minutes, events in {log}")
    with testing.temporary_lab("--fault-proxy") as lab:
        try:
            report = running.run(lab, seed=chosen, seconds=minutes * 60, events=log, once=once)
        finally:
            keep_logs(lab, log.with_suffix(".logs"))
    show(report)
    sys.exit(0 if report.is_clean else 1)


def keep_logs(lab: testing.RunningLab, folder: Path) -> None:
    """Keep the daemons' logs, which are removed with the lab; the event log alone seldom shows the cause."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(lab.place.log, folder, ignore_dangling_symlinks=True)


def show(report: running.Report) -> None:
    """The summary."""
    shown = table.Table(title=f"Random test, seed {report.seed}", title_justify="left")
    for heading in ("what", "how often"):
        shown.add_column(heading, justify="right" if heading == "how often" else "left")
    for name, counted in (("", report.steps), ("ended ", report.ends)):
        for what, count in sorted(counted.items()):
            shown.add_row(name + what, str(count))
    shown.add_row("looks at the invariants", f"{report.looks} ({report.blind} with a side away)")
    shown.add_row("looks with others in promised room", str(report.contended))
    shown.add_row("records that slurmctld left open, unsaved", str(report.left_open))
    shown.add_row("violations", str(len(report.violations)))
    shown.add_row("lost, doubled, orphaned, unclean", str(len(report.faults)))
    out = console.Console()
    out.print(shown)
    for line in (*sorted(report.violations), *report.faults):
        out.print(line, markup=False)


if __name__ == "__main__":
    main()
