"""The `penstock` command for click: sub-commands are imported only when called.

Separate from main.py, because importing click takes longer than checking a script. Other distributions, such
as penstock-lab, add sub-commands by an entry point that names a table like ours.
"""

from __future__ import annotations

import functools
import importlib
from importlib import metadata

import click

from penstock import __version__, errors
from penstock.cli.main import COMMANDS

ENTRY_POINTS = "penstock.commands"
IN_THE_LAB = ("demo", "lab")  # commands of penstock-lab


@functools.cache
def added() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for point in metadata.entry_points(group=ENTRY_POINTS):
        found |= point.load()
    return found


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS | added())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name) or added().get(cmd_name)
        if entry is None and cmd_name in IN_THE_LAB:
            raise errors.UsageError(
                f"`penstock {cmd_name}` is not installed", hint="Install the distribution penstock-lab."
            )
        if entry is None:
            return None
        module, _, attribute = entry[0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted((COMMANDS | added()).items())])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def cli() -> None:
    """sbatch in, pods out: Slurm schedules, Kubernetes runs.

    \b
    Examples:
      penstock validate job.sh         check a script as sbatch would, and list all errors
      penstock explain job.sh          show the request to Slurm and the pods
      penstock jobs                    list waiting and running jobs with their pods
      penstock doctor                  check the site
    """
