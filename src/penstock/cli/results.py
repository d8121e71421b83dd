"""`penstock results`: what is left of a job, and whether it is still as it was collected."""

from __future__ import annotations

import asyncio
import datetime
import os
import sys
from pathlib import Path

import click

from penstock import errors, wellknown
from penstock.cli import jobs, output
from penstock.results import finding, summary
from penstock.slurm import showing
from penstock.views import jobs as documents
from penstock.views import places

given_folder = click.option(
    "--results",
    "folder",
    default=places.results,
    type=click.Path(path_type=Path),
    help=f"Folder of all jobs' results; default ${wellknown.ENV_RESULTS}, else the site's.",
)


class NoResults(errors.NotThere):
    """There are none, or none yet."""


def required(folder: Path | None) -> Path:
    if folder is None:
        raise errors.UsageError(
            "where are the results?",
            hint=f"Set {wellknown.ENV_RESULTS} or {wellknown.ENV_SITE}, or give --results DIR.",
        )
    return folder


@click.command()
@click.argument("job")
@click.option("--verify", is_flag=True, help="Compare every file with checksums.txt.")
@given_folder
@jobs.as_format
def results(job: str, folder: Path | None, style: str, *, verify: bool) -> None:
    """Show what is left of a job; with --verify, whether it is still as it was collected.

    Exit code 0: there and, if asked, unchanged. 1: changed, incomplete or not yours. 3: there are none (yet).

    \b
    Examples:
      penstock results 17
      penstock results 20_3 --verify
      penstock results 20 --format json        all tasks of an array
    """
    found = [finding.read(path, verify=verify) for path in find(required(folder), job)]
    if style == "json":
        documents.echo(documents.Results(results=tuple(found)))
    else:
        click.echo("\n".join(map(_shown, found)), nl=False)
    sys.exit(0 if all(map(_is_good, found)) else 1)


def find(folder: Path, job: str) -> list[Path]:
    """The job's folders; NoResults with what is known when there are none."""
    found = finding.folders(folder, job)
    if found:
        return found
    record = asyncio.run(showing.records(places.slurm_conf(), job))[0]
    if record.shown_id != job:
        found = finding.folders(folder, record.shown_id)
    if found:
        return found
    if finding.is_being_collected(folder, record.job_id):
        raise NoResults(f"the results of job {job} are being collected", hint="Ask again in a moment.")
    raise NoResults(
        f"there are no results of job {job}, which is {record.state}",
        hint="They come when a job that runs as pods has ended. A job that never started has none.",
    )


def _is_good(found: finding.Found) -> bool:
    return found.summary.complete and (found.checked is None or found.checked.is_clean)


def _shown(found: finding.Found) -> str:
    text = summary.as_text(found.summary, when=_local).rstrip("\n")
    lines = [text, f"{'folder':<10} {found.folder}"]
    if found.attempts:
        lines.append(f"{'earlier':<10} {', '.join(found.attempts)}")
    if found.checked is not None:
        lines += _verdict(found)
    return "".join(f"{line}\n" for line in lines)


def _local(at: str) -> str:
    """The summary's UTC as this host's time; its owner may have written anything there."""
    try:
        return output.moment(datetime.datetime.fromisoformat(at))
    except ValueError:
        return at


def _verdict(found: finding.Found) -> list[str]:
    checked = found.checked
    assert checked is not None  # noqa: S101  # the one caller has looked
    if checked.is_clean:
        return [f"{'verified':<10} {checked.good} files are as they were collected"]
    lines = [f"{'changed':<10} {name}" for name in checked.changed]
    lines += [f"{'missing':<10} {name}" for name in checked.missing]
    return lines + [f"{'new':<10} {name}" for name in checked.unlisted]


def outputs_of(folder: Path | None, job: str) -> Path | None:
    """A collected job's folder, for commands that show a part of it."""
    if folder is None or not os.path.isdir(folder):  # noqa: PTH112  # never raises
        return None
    found = finding.folders(folder, job)
    return found[0] if len(found) == 1 else None
