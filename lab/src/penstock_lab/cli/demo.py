"""`penstock demo`: sample jobs on a temporary lab, checked from sbatch to sacct."""

from __future__ import annotations

import asyncio
import os
import sys

import click


@click.command()
@click.option("--keep", is_flag=True, help="Leave the lab up afterwards.")
@click.option("--name", default="demo", show_default=True, help="Name of the demo's lab.")
@click.option("--kubernetes", metavar="dev|real", help="Which cluster the lab has [default: dev].")
def demo(keep: bool, name: str, kubernetes: str | None) -> None:
    """Show unmodified sbatch scripts become pods under a real Slurm, in about a minute.

    Brings up a private lab. As an ordinary user, runs a job that succeeds, an array, a job that fails and
    one that is cancelled, and checks every outcome. Takes the lab down again, unless it existed before. Exits
    0 if everything was right. On a real Kubernetes it also runs a job with an image of its own, and one that
    is killed at its memory limit.

    \b
    Examples:
      penstock demo             run, then remove the lab
      penstock demo --keep      keep the lab: eval "$(penstock lab env --name demo)"
      penstock demo --kubernetes real    in real containers (docs/real-kubernetes.md)
    """
    from rich import console

    from penstock_lab import actions, bringup, interrupts, paths, privilege, progress, spec
    from penstock_lab.demo import demorun, scenario

    privilege.require_root(sys.argv[1:])
    os.umask(0o022)
    interrupts.heed()
    out = console.Console()
    place = paths.LabPaths(paths.choose_directory(directory="", name=paths.valid_name(name), environment=""))
    keep = keep or actions.is_made(place)  # left by an earlier --keep: may hold a user's files
    made = None
    try:
        with progress.listener() as listener:
            wishes = bringup.Wishes(name=name, kubernetes=kubernetes)
            made = bringup.bring_up(place, wishes, listener=listener, environment=os.environ)
        real = scenario.IN_CONTAINERS if made.kubernetes != spec.DEV else ()
        show = demorun.Demo(place, made.user, out, (*scenario.JOBS, *real))
        asyncio.run(show.run())
    finally:
        if made is not None and not keep:
            with interrupts.put_off():
                actions.take_down(place)
    _verdict(show.problems, keep=keep, name=name)


def _verdict(problems: list[str], *, keep: bool, name: str) -> None:
    if problems:
        click.secho("The demo found problems:", fg="red", err=True)
        for problem in problems:
            click.echo(f"  {problem}", err=True)
        sys.exit(1)
    click.secho("Every job ran as a pod and ended as Slurm's record says; no pod is left.", fg="green")
    if keep:
        click.echo(f'  eval "$(penstock lab env --name {name})"      then try sbatch, squeue, sacct, kubectl')
        click.echo("  sbatch --wrap 'nproc; sleep 30'            and watch: squeue; kubectl get pods -A -w")
        click.echo(f"  penstock lab down --name {name}             removes it without a trace")
    else:
        click.echo("  penstock demo --keep                       the same, and keeps the lab")
        click.echo('  penstock lab up; eval "$(penstock lab env)"   a lab to use with sbatch and kubectl')
        click.echo("  docs/architecture.md                       how it works")
