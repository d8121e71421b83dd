"""`penstock lab`: a private Slurm and Kubernetes on this machine.

Exit codes: 0 success; 1 failed or not healthy; 2 usage error; 3 no lab.
"""

from __future__ import annotations

import datetime
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec
from rich import table

from penstock import wellknown
from penstock.cli import output
from penstock_lab import (
    actions,
    bringup,
    interrupts,
    passwd,
    paths,
    privilege,
    progress,
    shellenv,
    spec,
    state,
)
from penstock_lab.kubernetes import builds
from penstock_lab.slurm import suites

Command = TypeVar("Command", bound=Callable[..., None])


def which_lab(command: Command) -> Command:
    """Options that choose the lab."""
    command = click.option("--name", default="", help="Name of the lab [default: default].")(command)
    return click.option(
        "--dir",
        "directory",
        default="",
        help="Directory of the lab [default: $PENSTOCK_LAB, else derived from the name].",
    )(command)


def place_of(directory: str, name: str) -> paths.LabPaths:
    if name:
        paths.valid_name(name)
    lab = os.environ.get(wellknown.ENV_LAB, "")
    return paths.LabPaths(paths.choose_directory(directory=directory, name=name, environment=lab))


@click.group()
def lab() -> None:
    """A private Slurm and Kubernetes on this machine.

    \b
    Examples:
      penstock lab up                    4 nodes of 8 CPUs, 32 GB and 4 GPUs
      eval "$(penstock lab env)"         sbatch, squeue, sacct, kubectl, penstock act on it
      sudo penstock lab adduser alice    alice may submit jobs, too
      penstock lab down                  removes everything

    Exit codes: 0 success, 1 failed or not healthy, 2 usage error, 3 no lab.
    """


def _as_absolute(context: click.Context, option: click.Parameter, choice: str | None) -> str | None:
    """Make a kubeconfig's path absolute: lab.json keeps it, and later calls may run elsewhere."""
    words = (None, spec.DEV, spec.REAL, spec.KWOK)
    return choice if choice in words else str(pathlib.Path(str(choice)).resolve())


@lab.command()
@which_lab
@click.option(
    "--port-base", type=click.IntRange(1024, 64000), help="First of the lab's ports [default: free ones]."
)
@click.option("--nodes", type=click.IntRange(1, spec.MAX_NODES), help="Number of nodes [default: 4].")
@click.option("--cpus", type=click.IntRange(1, 1024), help="CPUs of a node [default: 8].")
@click.option("--memory-gb", type=click.IntRange(1, 65536), help="Memory of a node [default: 32].")
@click.option("--gpus", type=click.IntRange(0, 64), help="GPUs of a node [default: 4].")
@click.option(
    "--kubernetes",
    callback=_as_absolute,
    metavar="dev|real|kwok|KUBECONFIG",
    help="Cluster: a small built-in one, a real one built here, a real one with simulated nodes (kwok), "
    "or an existing one [default: dev].",
)
@click.option(
    "--kubernetes-version",
    type=click.Choice(sorted(builds.VERSIONS)),
    help=f"Minor version, for a Kubernetes built here [default: {builds.NEWEST}].",
)
@click.option(
    "--slurm",
    type=click.Choice(suites.CHOICES),
    help="Release of Slurm; if it is not the installed one, it is downloaded once from Debian's archive "
    "[default: installed].",
)
@click.option(
    "--mode",
    type=click.Choice(["check", "trust"]),
    help="check: a job starts only if Kubernetes has room; trust: no check [default: check].",
)
@click.option(
    "--fault-proxy",
    is_flag=True,
    default=None,
    help="Put a proxy between penstockd and the API that injects faults on demand (for tests).",
)
@click.option("--bridge/--no-bridge", "bridge", default=None, hidden=True)
def up(directory: str, name: str, **wishes: Any) -> None:
    """Make a lab, or repair the existing one.

    \b
    Examples:
      penstock lab up                                   4 nodes of 8 CPUs, 32 GB and 4 GPUs
      penstock lab up --name small --nodes 2 --gpus 0   a second lab
      penstock lab up --kubernetes real --slurm 24.11   another Slurm, a real Kubernetes
    """
    privilege.require_root(sys.argv[1:])
    os.umask(0o022)
    interrupts.heed()
    place = place_of(directory, name)
    with progress.listener() as listener:
        made = bringup.bring_up(
            place, bringup.Wishes(name=name or None, **wishes), listener=listener, environment=os.environ
        )
    named = f" --dir {place.directory}" if directory else f" --name {name}" if name else ""
    what = f"{made.nodes} nodes of {made.cpus} CPUs, {made.memory_gb} GB, {made.gpus} GPUs"
    click.echo(f"The lab runs in {place.directory}: {what}; {made.user} may submit.")
    click.echo(f'  eval "$(penstock lab env{named})"   then sbatch, squeue, sacct, kubectl act on it')
    click.echo(f"  penstock lab down{named}            removes everything")


@lab.command()
@which_lab
@click.option("--force", is_flag=True, help="Remove the lab even if its lab.json cannot be read.")
def down(directory: str, name: str, force: bool) -> None:
    """Stop the lab and remove all its files.

    \b
    Examples:
      penstock lab down
      penstock lab down --name small
      penstock lab down --dir /tmp/lab --force   even if its lab.json cannot be read
    """
    privilege.require_root(sys.argv[1:])
    place = place_of(directory, name)
    removed = actions.take_down(place, force=force)
    click.echo(
        f"The lab in {place.directory} is removed."
        if removed
        else f"No lab in {place.directory}, nothing to do."
    )


@lab.command()
@which_lab
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(directory: str, name: str, form: str) -> None:
    """Show every component with pid, memory and health.

    \b
    Examples:
      penstock lab status
      penstock lab status --name small --format json
    """
    now = state.look(place_of(directory, name))
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(now), indent=2))
    else:
        output.screen().print(_status_table(now))
    sys.exit(0 if now.healthy else 1)


def _status_table(now: state.LabState) -> table.Table:
    title = f"Lab {now.name} in {now.directory}, user {now.user}"
    headings = ("component", "state", "pid", "memory", "since", "health")
    shown = output.columns(*headings, title=title, right=("pid", "memory"))
    for part in now.components:
        shown.add_row(
            part.name,
            part.state,
            str(part.pid or "-"),
            f"{part.memory_mb:.0f} MB" if part.pid else "-",
            datetime.datetime.fromtimestamp(part.since).strftime("%H:%M:%S") if part.since else "-",
            output.styled(part.health, "green" if part.healthy else "red"),
        )
    return shown


@lab.command()
@which_lab
def env(directory: str, name: str) -> None:
    """Print export lines for a shell.

    \b
    Examples:
      eval "$(penstock lab env)"                then sbatch, squeue, sacct, kubectl act on it
      eval "$(penstock lab env --name small)"   for another lab
    """
    place = place_of(directory, name)
    spec.load(place)
    lines = shellenv.shell_lines(place, root=os.geteuid() == 0, user=passwd.current_name())
    click.echo(lines, nl=False)


@lab.command()
@click.argument("user")
@which_lab
@click.option(
    "--account", default=spec.ACCOUNTS[0], show_default=True, help="Account that jobs are charged to."
)
def adduser(user: str, directory: str, name: str, account: str) -> None:
    """Let an existing user of this machine submit jobs to the lab.

    \b
    Examples:
      penstock lab adduser alice
      penstock lab adduser bob --account research --name small
    """
    privilege.require_root(sys.argv[1:])
    place = place_of(directory, name)
    actions.add_user(place, user, account=account)
    click.echo(f"{user} may submit to account {account}; folder {place.nas_home(user)}.")


@lab.command()
@click.argument("components", nargs=-1, required=True)
@which_lab
def restart(components: tuple[str, ...], directory: str, name: str) -> None:
    """Restart components; `penstock lab status` lists their names.

    \b
    Examples:
      penstock lab restart penstockd
      penstock lab restart slurmctld slurmd-n1
    """
    privilege.require_root(sys.argv[1:])
    actions.restart(place_of(directory, name), components)
    click.echo(f"Restarted: {', '.join(components)}.")
