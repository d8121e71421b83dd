"""Prints results as JSON or as tables.

Cells hold text of users and other programs, such as job names. Markup and emoji codes in them are not
interpreted, so that no job name can break the output. Long cells are folded, not truncated, because the end
of a reason matters most. Output to a pipe or a file is not folded: one row is one line. Times are local.
"""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
import msgspec

if TYPE_CHECKING:  # rich costs more to import than most commands take
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


Document = TypeVar("Document")
_ENDLESS = 100_000  # columns if the output is not a terminal


def echo_json(document: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))


def answer(document: Document, form: str, show: Callable[[Document], None]) -> None:
    if form == "json":
        echo_json(document)
    else:
        show(document)


def screen() -> Console:
    from rich import console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _ENDLESS
    return console.Console(markup=False, emoji=False, highlight=False, width=width)


def moment(at: datetime.datetime | None, *, exact: bool = False) -> str:
    """Local time such as 2026-01-31 21:00:00 KST; empty for None."""
    if at is None:
        return ""
    local = at.astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}{f'.{local.microsecond // 1000:03d}' if exact else ''} {local:%Z}"


def duration(seconds: int | None) -> str:
    """Slurm's format, such as 1-02:03:04."""
    if seconds is None:
        return ""
    days, rest = divmod(seconds, 86400)
    return f"{f'{days}-' if days else ''}{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def columns(*headings: str, title: str = "", right: tuple[str, ...] = ()) -> Table:
    """An empty table; columns in `right` are aligned to the right."""
    from rich import table

    made = table.Table(box=None, pad_edge=False, title=title or None, title_justify="left")
    for heading in headings:
        side: Literal["left", "right"] = "right" if heading in right else "left"
        made.add_column(heading, overflow="fold", justify=side, min_width=len(heading))
    return made


def styled(words: str, style: str) -> Text:
    from rich import text

    return text.Text(words, style=style, overflow="fold")
