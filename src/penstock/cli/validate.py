"""`penstock validate` for click: is this script right, and what of it will not do what it says?

Nothing is submitted and no Slurm is needed. The options described here are read without click in plain calls
(quick.py), which checks them, too.
"""

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
    help="The site to check against (JSON, TOML, YAML); else $PENSTOCK_SITE, else the installed one. "
    "Empty: none.",
)
@click.option("--lint", is_flag=True, help="Also say what is allowed but unwise.")
@click.option(
    "--silence", multiple=True, metavar="CODE", help="Leave out warnings of this code (repeatable)."
)
@click.option(
    "--slurm",
    "release",
    metavar="VERSION",
    help="Slurm's release, such as 24.11 (default: the installed one, else 22.05).",
)
@click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
@click.option("--no-summary", is_flag=True, hidden=True)
@click.option("--with", "accepted", multiple=True, hidden=True)
def validate(**words: Any) -> None:
    """Check batch scripts as sbatch would, and say everything that is wrong.

    FILE may be a directory, or - for standard input. Exit status: 0 all accepted, 1 some rejected, 2 wrong
    call, or a file that cannot be read; the others are checked all the same.

    \b
    Examples:
      penstock validate job.sh                      what sbatch would say, and what it would not
      penstock validate --lint --site site.json .   every script of this folder, against a site
      penstock validate --format json - < job.sh    for editors and programs
      penstock validate --slurm 24.11 job.sh        by the rules of another release
    """
    sys.exit(quick.run(quick.Request(**words)))
