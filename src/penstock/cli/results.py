"""`penstock results`."""

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
    """Show a job's results; with --verify, whether they are unchanged since they were collected.

    Exit code 0: complete and, with --verify, unchanged. 1: changed, incomplete or no permission. 3: no
    results (yet).

    \b
    Examples:
      penstock results 17
      penstock results 20_3 --verify
      penstock results 20 --format json        all tasks of an array
    """
    if folder is None:
        raise errors.UsageError(
            "the results folder is unknown",
            hint=f"Set {wellknown.ENV_RESULTS} or {wellknown.ENV_SITE}, or use --results DIR.",
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
    """Local time; unchanged if it is not a time, because the owner may have edited the summary."""
    try:
        return output.moment(datetime.datetime.fromisoformat(at))
    except ValueError:
        return at


def _verdict(checked: checksums.Verdict) -> list[str]:
    if checked.is_clean:
        return [f"{'verified':<10} {checked.good} files are unchanged"]
    lines = [f"{'changed':<10} {name}" for name in checked.changed]
    lines += [f"{'missing':<10} {name}" for name in checked.missing]
    return lines + [f"{'new':<10} {name}" for name in checked.unlisted]
