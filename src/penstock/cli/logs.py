"""`penstock logs`: a job's output while it runs and afterwards, and what our own services say."""

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
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--stderr", "errors_too", is_flag=True, help="The job's stderr instead of its stdout.")
@click.option(
    "--daemon",
    "service",
    type=click.Choice(SERVICES),
    is_flag=False,
    flag_value="penstockd",
    help="What one of our services says, penstockd if none is named.",
)
@options.results_option
def logs(
    job: str | None, folder: Path | None, service: str | None, *, follow: bool, errors_too: bool
) -> None:
    """Show a job's output, while it runs and afterwards.

    Exit code 0: shown, and with -f the job has completed. 1: with -f, it ended otherwise. 3: there is no such
    job, or no output of it.

    \b
    Examples:
      penstock logs 17
      penstock logs 20_3 -f
      penstock logs 17 --stderr
      penstock logs --daemon -f
    """
    if service is not None:
        _say(service, follow=follow)
        return
    stream: Literal["stdout", "stderr"] = "stderr" if errors_too else "stdout"
    found = view.Output(
        sources.SlurmCommands(), sources.Socket(), folder, job or "", stream, clock.SystemClock()
    )
    asyncio.run(_show(found, follow=follow))


async def _show(found: view.Output, *, follow: bool) -> None:
    async for piece in found.read(follow=follow):
        sys.stdout.buffer.write(piece.data)
        sys.stdout.buffer.flush()
        if piece.began_again:
            click.echo("penstock: the job began again", err=True)


def _say(service: str, *, follow: bool) -> None:
    lab = os.environ.get(wellknown.ENV_LAB, "")
    if not lab:
        _journal(service, follow=follow)
        return
    tail = tails.Tail(Path(lab) / "log" / f"{service}.log")
    if not tail.path.exists():
        raise errors.PenstockError(f"the lab in {lab} has no {service}, or it has said nothing yet")
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
            "there is no journal on this host", hint="Look where its units log."
        ) from None
    sys.exit(code)
