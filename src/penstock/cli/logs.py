"""`penstock logs`: a job's output while it runs and afterwards, and what our own services say.

Files are read with the caller's own rights, so nobody sees more than the kernel lets them.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import click

from penstock import errors, wellknown
from penstock.cli import asking, jobs, results
from penstock.results import finding, gathering, tailing
from penstock.slurm import showing

POLL = 0.2
ASK_SLURM = 2.0  # seconds between two questions whether the job still runs
GOES_ON = frozenset(("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "RESIZING"))
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
@results.given_folder
def logs(
    job: str | None, folder: Path | None, service: str | None, *, follow: bool, errors_too: bool
) -> None:
    """Show a job's output, while it runs and afterwards.

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
    if job is None or not finding.JOB.fullmatch(job):
        raise errors.UsageError("which job?", hint="A number such as 17, or 20_3 in an array.")
    _show(job, folder, stream="stderr" if errors_too else "stdout", follow=follow)


# -- a job -----------------------------------------------------------------------------------------


def _show(job: str, folder: Path | None, *, stream: str, follow: bool) -> None:
    record = asyncio.run(showing.record(jobs.slurm_conf(), job))
    path = _path(record, folder, stream)
    tail = tailing.Tail(path)
    try:
        _write(tail)
        if follow and record.state.split()[0] in GOES_ON:
            _follow(job, tail)
    except PermissionError:
        raise errors.PenstockError(
            f"{path} is not yours to read", hint=f"The job is {record.user}'s."
        ) from None
    if not path.exists():
        click.echo(f"penstock: {path} is not there: job {job} is {record.state}", err=True)


def _path(record: showing.JobRecord, folder: Path | None, stream: str) -> Path:
    """The file the job writes; once it has ended, what was collected of it."""
    if record.state.split()[0] not in GOES_ON:
        collected = results.outputs_of(folder, record.shown_id)
        if collected is not None:
            return collected / (gathering.STDERR if stream == "stderr" else gathering.STDOUT)
    live = _from_penstockd(record.job_id, stream)
    named = live or (record.stderr if stream == "stderr" else record.stdout)
    if not named:
        raise errors.PenstockError(
            f"nobody remembers where job {record.shown_id} wrote its {stream}",
            hint=f"It is {record.state}; a job that has not started has written nothing.",
        )
    return Path(named)


def _from_penstockd(job_id: int, stream: str) -> str:
    """Where the running attempt writes, every pattern filled in; nothing when penstockd is away."""
    try:
        (view,) = asking.describe((job_id,))
    except errors.PenstockError:
        return ""
    return os.fsdecode(view.stderr if stream == "stderr" else view.stdout)


def _follow(job: str, tail: tailing.Tail) -> None:
    """Until Slurm says that the job is over, and all of its output has been shown."""
    asked, restarts = time.monotonic(), 0
    while True:
        _write(tail)
        if tail.began_again > restarts:
            restarts = tail.began_again
            click.echo("penstock: the job began again", err=True)
        if time.monotonic() - asked > ASK_SLURM:
            asked = time.monotonic()
            state = asyncio.run(showing.record(jobs.slurm_conf(), job)).state
            if state.split()[0] not in GOES_ON:
                _write(tail)
                return
        time.sleep(POLL)


def _write(tail: tailing.Tail) -> None:
    for chunk in tail.more():
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


# -- our services ----------------------------------------------------------------------------------


def _say(service: str, *, follow: bool) -> None:
    lab = os.environ.get(wellknown.ENV_LAB, "")
    if not lab:
        _journal(service, follow=follow)
        return
    tail = tailing.Tail(Path(lab) / "log" / f"{service}.log")
    if not tail.path.exists():
        raise errors.PenstockError(f"the lab in {lab} has no {service}, or it has said nothing yet")
    _write(tail)
    while follow:
        time.sleep(POLL)
        _write(tail)


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
