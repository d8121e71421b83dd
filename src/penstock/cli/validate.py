"""`penstock validate` for click. quick.py parses plain calls without it, and runs the check for both."""

from __future__ import annotations

import sys
from typing import Any

import click

from penstock.cli import quick


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--format", "style", type=click.Choice(quick.STYLES), default="text", help="How to print.")
@click.option(
    "--site",
    "site_file",
    metavar="FILE",
    help="Site to check against (JSON, TOML, YAML); default $PENSTOCK_SITE, else the installed one. "
    "Empty: none.",
)
@click.option("--lint", is_flag=True, help="Also report what is allowed but unwise.")
@click.option("--silence", multiple=True, metavar="CODE", help="Omit warnings with this code; repeatable.")
@click.option(
    "--slurm",
    "release",
    metavar="VERSION",
    help="Slurm release, such as 24.11; default: the installed one, else 22.05.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
@click.option("--no-summary", is_flag=True, hidden=True)
@click.option("--with", "accepted", multiple=True, hidden=True)
def validate(**words: Any) -> None:
    """Check batch scripts as sbatch would, and list all errors and warnings. Nothing is submitted.

    FILE may be a directory, or - for standard input. Exit status: 0 all accepted, 1 some rejected, 2 usage
    error, or a file that cannot be read; the others are checked all the same.

    \b
    Examples:
      penstock validate job.sh
      penstock validate --lint --site site.json .   all scripts of this folder, against a site
      penstock validate --format json - < job.sh    for editors and programs
      penstock validate --slurm 24.11 job.sh        for another release of Slurm
    """
    sys.exit(quick.run(quick.Request(**words)))
