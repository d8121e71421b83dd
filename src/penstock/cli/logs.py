"""`penstock logs`: a job's output while it runs and afterwards, and what our own services say.

Files are read with the caller's own rights, so nobody sees more than the kernel lets them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import click

from penstock import errors, wellknown
from penstock.cli import results
from penstock.results import finding, gathering, tailing
from penstock.slurm import showing
from penstock.views import places, sources

POLL = 0.2
ASK_SLURM = 2.0  # seconds between two questions whether the job still runs
COLLECTED_WITHIN = 10.0  # seconds
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
    if job is None or not finding.JOB.fullmatch(job):
        raise errors.UsageError("which job?", hint="A number such as 17, or 20_3 in an array.")
    _show(job, folder, stream="stderr" if errors_too else "stdout", follow=follow)


# -- a job -----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Watched:
    """One stream of one job, and how far it has been shown."""

    job: str
    folder: Path | None
    stream: str
    record: showing.JobRecord
    tail: tailing.Tail
    found: bool = False
    """Whether anybody knows where the file is."""

    def look(self) -> None:
        """Ask Slurm again; until something has been read, the file may still turn out to be another one."""
        self.record = asyncio.run(showing.record(places.slurm_conf(), self.job))
        self.find()

    def find(self) -> None:
        path = None if self.tail.offset else _path(self.record, self.folder, self.stream)
        if path is not None:
            self.tail.path, self.found = path, True

    def write(self) -> None:
        _write(self.tail)


def _show(job: str, folder: Path | None, *, stream: str, follow: bool) -> None:
    record = asyncio.run(showing.record(places.slurm_conf(), job))
    watched = Watched(job, folder, stream, record, tailing.Tail(Path(os.devnull)))
    watched.find()
    try:
        watched.write()
        if follow and watched.record.goes_on:
            _follow(watched)
    except PermissionError:
        hint = f"The job is {record.user}'s."
        raise errors.PenstockError(f"{watched.tail.path} is not yours to read", hint=hint) from None
    if not watched.tail.offset and not watched.record.goes_on:
        _say_what_was_not_collected(watched)
    state = watched.record.state
    if not watched.found:
        raise errors.NotThere(
            f"the path of job {record.shown_id}'s {stream} is not known",
            hint=f"It is {state}; a job that has not started has written nothing.",
        )
    if not watched.tail.path.exists():
        hint = watched.record.comment or ("" if state != "PENDING" else "It has not started.")
        raise errors.NotThere(f"{watched.tail.path} is not there: job {job} is {state}", hint=hint)
    if follow and not watched.record.goes_on and state != "COMPLETED":
        raise errors.PenstockError(f"job {job} is {state} {_end_of(watched.record)}")


def _say_what_was_not_collected(watched: Watched) -> None:
    """An empty file in the results may stand for one that the collector could not read; its notes say so."""
    collected = results.outputs_of(watched.folder, watched.record.shown_id)
    if collected is None:
        return
    prefix = f"{watched.tail.path.name}: "
    for note in finding.read(collected, verify=False).summary.notes:
        if note.startswith(prefix):
            message = f"job {watched.job} has no {watched.stream}: {note.removeprefix(prefix)}"
            raise errors.NotThere(message, hint=watched.record.comment)


def _end_of(record: showing.JobRecord) -> str:
    return f"{record.exit_code or 0}:{record.signal or 0}"


def _path(record: showing.JobRecord, folder: Path | None, stream: str) -> Path | None:
    """The file the job writes; once it has ended, what was collected of it. None when nobody knows."""
    if not record.goes_on:
        collected = results.outputs_of(folder, record.shown_id)
        if collected is not None:
            return collected / (gathering.STDERR if stream == "stderr" else gathering.STDOUT)
    named = _from_penstockd(record.job_id, stream) or (record.stderr if stream == "stderr" else record.stdout)
    return Path(named) if named else None


def _from_penstockd(job_id: int, stream: str) -> str:
    """Where the running attempt writes, every pattern filled in; nothing when penstockd is away."""
    try:
        (view,) = sources.describe((job_id,)).jobs
    except errors.PenstockError:
        return ""
    return os.fsdecode(view.stderr if stream == "stderr" else view.stdout)


def _follow(watched: Watched) -> None:
    """Until Slurm says that the job is over, and all of its output has been shown."""
    asked, restarts = time.monotonic(), 0
    while watched.record.goes_on:
        watched.find()
        watched.write()
        if watched.tail.began_again > restarts:
            restarts = watched.tail.began_again
            click.echo("penstock: the job began again", err=True)
        if time.monotonic() - asked > ASK_SLURM:
            asked = time.monotonic()
            watched.look()
        time.sleep(POLL)
    _write_the_rest(watched)


def _write_the_rest(watched: Watched) -> None:
    """A job that was over before its file was known is shown once its results are there."""
    deadline = time.monotonic() + COLLECTED_WITHIN
    watched.write()
    while not watched.tail.offset and watched.folder and time.monotonic() < deadline:
        watched.find()
        watched.write()
        if results.outputs_of(watched.folder, watched.record.shown_id):
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
