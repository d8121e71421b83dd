"""The `penstock` command for click: sub-commands by name, each imported only when it is called.

Apart from main.py, because importing click takes longer than checking a script.
"""

from __future__ import annotations

import importlib

import click

from penstock import __version__
from penstock.cli.main import COMMANDS


class LazyGroup(click.Group):
    """Knows the names of all sub-commands and imports one only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def cli() -> None:
    """sbatch in, pods out. Slurm decides, Kubernetes runs, one truth.

    \b
    Examples:
      penstock demo                    see it work, leave nothing behind
      penstock lab up                  a Slurm and a Kubernetes to play with
      eval "$(penstock lab env)"       then sbatch, squeue, sacct, kubectl work against it
    """
