"""`penstock nodes`: both views of every node side by side.

Exit codes: 0 they agree; 1 they do not; 2 a wrong call or site file.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
from rich import table

from penstock.cli import output
from penstock.cli.options import form_option, site_option
from penstock.doctor.live import Live
from penstock.site import loading
from penstock.views import nodes as view


@click.command()
@site_option
@form_option
def nodes(site_file: Path, form: str) -> None:
    """Show every node as Slurm and as Kubernetes see it.

    Amounts are CPUs / memory in GiB / GPUs. `jobs` is what Slurm gave away and what pods of jobs ask for,
    `others` what other pods ask for, `free` what is left on both view.

    \b
    Examples:
      penstock nodes
      penstock nodes --format json
    """
    found = asyncio.run(view.nodes(Live(loading.load(site_file))))
    if form == "json":
        output.echo_json(found)
    else:
        output.screen().print(_table(found.nodes))
        click.echo("Amounts are CPUs / memory in GiB / GPUs.")
    sys.exit(1 if any(node.disagreements for node in found.nodes) else 0)


def _table(found: tuple[view.NodeSides, ...]) -> table.Table:
    shown = output.columns(
        "node",
        "Slurm",
        "Kubernetes",
        "claims",
        "can give",
        "allocated",
        "jobs",
        "others",
        "free",
        "",
    )
    for node in found:
        colour = "red" if node.disagreements else None
        shown.add_row(
            node.name,
            node.slurm_state.lower(),
            node.kubernetes_state,
            _words(node.slurm_total),
            _words(node.kubernetes_total),
            _words(node.allocated),
            _words(node.requested),
            _words(node.foreign),
            _words(node.free),
            "; ".join(node.disagreements),
            style=colour,
        )
    return shown


def _words(amounts: view.Amounts | None) -> str:
    if amounts is None:
        return "-"
    return f"{amounts.cpus:g}/{amounts.memory_mb / 1024:.3g}/{amounts.gpus}"
