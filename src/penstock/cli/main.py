"""The `penstock` command: a table of sub-commands, each imported only when it is called.

Start-up time is what a person feels at every call, so nothing but click is imported here. An error of ours is
printed as one line (and a hint); anything else is a defect and keeps its traceback.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Final

gc.set_threshold(50_000)  # nothing that is imported is garbage: looking for it costs 5 ms at every start

import click  # noqa: E402  # after the line above, which is about this import

from penstock import __version__, errors  # noqa: E402  # as above

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "daemon": ("penstock.cli.daemon:daemon", "Run penstockd, the process between Slurm and Kubernetes."),
    "demo": ("penstock.cli.demo:demo", "Show the whole path on this machine in about a minute."),
    "jobs": ("penstock.cli.jobs:jobs", "List jobs that wait or run, with their pods."),
    "inbox": ("penstock.cli.inbox:inbox", "Show where each file dropped on the NAS is."),
    "intake": ("penstock.cli.intake:intake", "Submit the files that users drop on the NAS, each once."),
    "lab": ("penstock.cli.lab:lab", "A private Slurm and Kubernetes on this machine: up, down, status, env."),
    "explain": ("penstock.cli.explain:explain", "Say what Slurm and Kubernetes will do with a script."),
    "mkinst": ("penstock.cli.mkinst:mkinst", "Create a pod for a user from command-line words."),
    "mkyaml": ("penstock.cli.mkinst:mkyaml", "Print the manifest that mkinst would create."),
    "validate": ("penstock.cli.validate:validate", "Check batch scripts as sbatch would."),
    "show": ("penstock.cli.jobs:show", "Show one job on both sides, and what happened when."),
}


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


QUICK: Final = ("validate",)  # called by editors and hooks at every keystroke, and has nothing to tidy up


def main() -> None:
    """Run the command; exit 0 on success, 2 on a wrong call, 1 on anything else that went wrong."""
    try:
        cli(prog_name="penstock")
    except errors.PenstockError as error:
        click.echo(f"penstock: {error.message}", err=True)
        if error.hint:
            click.echo(f"  {error.hint}", err=True)
        sys.exit(error.exit_code)
    except SystemExit as end:
        if tuple(sys.argv[1:2]) == QUICK and isinstance(end.code, int | None):
            _leave_at_once(end.code or 0)
        raise


def _leave_at_once(code: int) -> None:
    """Without Python's own tidying up, which takes 8 ms."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
