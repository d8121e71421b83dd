"""`penstock results`: what is left of a job, and whether it is still as it was collected."""

from __future__ import annotations

import asyncio
import datetime
import sys
from pathlib import Path

import click

from penstock import errors, wellknown
from penstock.cli import options, output
from penstock.results import checksums, resultpaths, summary
from penstock.views import results as view
from penstock.views import sources


@click.command()
@click.argument("job")
@click.option("--verify", is_flag=True, help="Compare every file with checksums.txt.")
@options.results_option
@options.form_option
def results(job: str, folder: Path | None, form: str, *, verify: bool) -> None:
    """Show what is left of a job; with --verify, whether it is still as it was collected.

    Exit code 0: there and, if asked, unchanged. 1: changed, incomplete or not yours. 3: there are none (yet).

    \b
    Examples:
      penstock results 17
      penstock results 20_3 --verify
      penstock results 20 --format json        all tasks of an array
    """
    if folder is None:
        raise errors.UsageError(
            "where are the results?",
            hint=f"Set {wellknown.ENV_RESULTS} or {wellknown.ENV_SITE}, or give --results DIR.",
        )
    found = asyncio.run(view.results(sources.SlurmCommands(), folder, job, verify=verify))
    output.answer(found, form, lambda shown: click.echo("\n".join(map(_shown, shown.results)), nl=False))
    sys.exit(0 if found.are_good else 1)


def _shown(found: resultpaths.Found) -> str:
    text = summary.as_text(found.summary, when=_local).rstrip("\n")
    lines = [text, f"{'folder':<10} {found.folder}"]
    if found.attempts:
        lines.append(f"{'earlier':<10} {', '.join(found.attempts)}")
    if found.checked is not None:
        lines += _verdict(found.checked)
    return "".join(f"{line}\n" for line in lines)


def _local(at: str) -> str:
    """The summary's UTC as this host's time; its owner may have written anything there."""
    try:
        return output.moment(datetime.datetime.fromisoformat(at))
    except ValueError:
        return at


def _verdict(checked: checksums.Verdict) -> list[str]:
    if checked.is_clean:
        return [f"{'verified':<10} {checked.good} files are as they were collected"]
    lines = [f"{'changed':<10} {name}" for name in checked.changed]
    lines += [f"{'missing':<10} {name}" for name in checked.missing]
    return lines + [f"{'new':<10} {name}" for name in checked.unlisted]
