"""`penstock logs`: output of jobs, and logs of our daemons."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import click

from penstock import clock, errors, wellknown
from penstock.cli import options
from penstock.results import tails
from penstock.views import logs as view
from penstock.views import sources

SERVICES = ("penstockd", "collector", "intake")


@click.command()
@click.argument("job", required=False)
@click.option("-f", "--follow", is_flag=True, help="Follow until the job has ended.")
@click.option("--stderr", "is_stderr", is_flag=True, help="The job's stderr instead of its stdout.")
@click.option(
    "--daemon",
    "service",
    type=click.Choice(SERVICES),
    is_flag=False,
    flag_value="penstockd",
    help="Show the log of a daemon; default penstockd.",
)
@options.results_option
def logs(job: str | None, folder: Path | None, service: str | None, *, follow: bool, is_stderr: bool) -> None:
    """Show a job's output, while it runs and afterwards.

    Exit code 0: shown, and with -f the job has completed. 1: with -f, the job has failed. 3: no such job, or
    it has no output.

    \b
    Examples:
      penstock logs 17
      penstock logs 20_3 -f
      penstock logs 17 --stderr
      penstock logs --daemon -f
    """
    if service is not None:
        _show_log(service, follow=follow)
        return
    stream: Literal["stdout", "stderr"] = "stderr" if is_stderr else "stdout"
    found = view.Output(
        sources.SlurmCommands(), sources.Socket(), folder, job or "", stream, clock.SystemClock()
    )
    asyncio.run(_show(found, follow=follow))


async def _show(found: view.Output, *, follow: bool) -> None:
    async for piece in found.read(follow=follow):
        sys.stdout.buffer.write(piece.data)
        sys.stdout.buffer.flush()
        if piece.began_again:
            click.echo("penstock: the job was requeued, its output starts again", err=True)


def _show_log(service: str, *, follow: bool) -> None:
    lab = os.environ.get(wellknown.ENV_LAB, "")
    if not lab:
        _journal(service, follow=follow)
        return
    tail = tails.Tail(Path(lab) / "log" / f"{service}.log")
    if not tail.path.exists():
        raise errors.PenstockError(f"no log of {service} in the lab {lab}")
    while True:
        for chunk in tail.more():
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        if not follow:
            return
        time.sleep(view.POLL)


def _journal(service: str, *, follow: bool) -> None:
    unit = service if service.startswith("penstock") else f"penstock-{service}"
    argv = ["journalctl", f"--unit={unit}.service", "--no-pager", *(["--follow"] if follow else [])]
    try:
        code = subprocess.run(argv, check=False).returncode
    except FileNotFoundError:
        raise errors.PenstockError(
            "journalctl is not installed on this host", hint="Read the log where the unit writes it."
        ) from None
    sys.exit(code)
