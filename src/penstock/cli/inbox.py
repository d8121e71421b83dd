"""`penstock inbox`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from penstock import wellknown
from penstock.cli import options, output
from penstock.intake import status
from penstock.views import inbox as view


@click.command()
@click.option("--all", "everybody", is_flag=True, help="All users' files, not only yours.")
@click.option(
    "--nas",
    type=click.Path(path_type=Path),
    envvar=wellknown.ENV_NAS,
    help="The NAS [default: $PENSTOCK_NAS].",
)
@options.form_option
def inbox(everybody: bool, nas: Path | None, form: str) -> None:
    """Show each file dropped on the NAS: arriving, taken, submitted with its job, or refused with the reason.

    Root sees all users' files. Exit code: 0 shown, 1 no inbox.

    \b
    Examples:
      penstock inbox
      penstock inbox --format json
      penstock inbox --nas /nas --all
    """
    uid = None if everybody or os.geteuid() == 0 else os.geteuid()
    output.answer(asyncio.run(view.inbox(nas, uid=uid)), form, _print)


def _print(found: status.Inbox) -> None:
    out = output.screen()
    if found.problem:
        out.print(found.problem, style="red")
    shown = output.columns("file", "user", "state", "job", "when", "")
    for item in (*found.waiting, *found.done):
        words = item.words.split("\n")[-1] if item.words else ""
        where = f"{words} {item.path}" if item.state == "failed" else words or item.path
        shown.add_row(item.name, item.user, item.state, item.job, output.moment(item.at), where)
    out.print(shown if found.waiting or found.done else "No files.")
