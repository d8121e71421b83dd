"""`penstock nodes`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from penstock.cli import output
from penstock.cli.options import form_option, site_option
from penstock.doctor.live import Live
from penstock.site import loader
from penstock.views import nodes as view


@click.command()
@site_option
@form_option
def nodes(site_file: Path, form: str) -> None:
    """Show every node in Slurm and in Kubernetes.

    Amounts are CPUs / memory in GiB / GPUs. `allocated` is allocated to jobs by Slurm, `jobs` requested by
    pods of jobs, `others` requested by other pods, `free` free on both sides.

    Exit codes: 0 the two sides agree, 1 they disagree, 2 usage error or invalid site file.

    \b
    Examples:
      penstock nodes
      penstock nodes --format json
    """
    found = asyncio.run(view.nodes(Live(loader.load(site_file))))
    output.answer(found, form, _print)
    sys.exit(1 if any(node.disagreements for node in found.nodes) else 0)


def _print(found: view.Nodes) -> None:
    sides = ("Slurm", "Kubernetes", "configured", "allocatable", "allocated", "jobs", "others", "free")
    shown = output.columns("node", *sides, "")
    for node in found.nodes:
        states = (node.name, node.slurm_state.lower(), node.kubernetes_state)
        has = (node.slurm_total, node.kubernetes_total, node.allocated)
        amounts = map(_words, (*has, node.requested, node.foreign, node.free))
        colour = "red" if node.disagreements else None
        shown.add_row(*states, *amounts, "; ".join(node.disagreements), style=colour)
    output.screen().print(shown)
    click.echo("Amounts are CPUs / memory in GiB / GPUs.")


def _words(amounts: view.Amounts | None) -> str:
    if amounts is None:
        return "-"
    return f"{amounts.cpus:g}/{amounts.memory_mb / 1024:.3g}/{amounts.gpus}"
