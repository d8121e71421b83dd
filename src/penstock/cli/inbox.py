"""`penstock inbox`: where is my file?"""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from penstock import errors, wellknown
from penstock.cli import output
from penstock.intake import status
from penstock.views import jobs as documents

LOCAL = Path("/run/penstock/inbox.json")


@click.command()
@click.option("--all", "everybody", is_flag=True, help="Everybody's files, not only yours.")
@click.option("--nas", type=click.Path(path_type=Path), help="The NAS [default: $PENSTOCK_NAS].")
@click.option("--format", "style", type=click.Choice(["table", "json"]), default="table", show_default=True)
def inbox(everybody: bool, nas: Path | None, style: str) -> None:
    """Show where each file dropped on the NAS is: arriving, taken, a job, or refused and why.

    Root sees everybody's. Exit code: 0 shown, 1 there is no inbox to show.

    \b
    Examples:
      penstock inbox
      penstock inbox --format json
      penstock inbox --nas /nas --all
    """
    found = _read(_place(nas))
    if not everybody and os.geteuid() != 0:
        found = _only(found, os.geteuid())
    if style == "json":
        documents.echo(found)
    else:
        _print(found)


def _place(nas: Path | None) -> Path:
    chosen = nas or (Path(os.environ[wellknown.ENV_NAS]) if wellknown.ENV_NAS in os.environ else None)
    return chosen / wellknown.DROP_FOLDER / wellknown.DROP_INDEX if chosen else LOCAL


def _read(path: Path) -> status.Inbox:
    try:
        return msgspec.json.decode(path.read_bytes(), type=status.Inbox)
    except OSError as error:
        raise errors.PenstockError(
            f"there is no inbox at {path}: {error.strerror}",
            hint="Name the NAS with --nas; if it is right, the intake has not run yet.",
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.PenstockError(f"{path} is not an inbox: {error}") from error


def _only(found: status.Inbox, uid: int) -> status.Inbox:
    return msgspec.structs.replace(
        found,
        waiting=tuple(item for item in found.waiting if item.uid == uid),
        done=tuple(item for item in found.done if item.uid == uid),
    )


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
