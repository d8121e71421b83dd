"""Answers as they are printed: as JSON for programs, as tables for people.

Others chose the words in a table: names of jobs, reasons of nodes, complaints of programs. Nothing in a cell
is taken for markup or a symbol, so that nobody's job name colours, hides or breaks what others see, and what
does not fit is folded, not cut: the end of a reason is what one looks for. What goes into a pipe or a file is
not folded at all: one row is one line. Times are local, with their date.
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
_ENDLESS = 100_000  # columns of what is no terminal


def echo_json(document: Any) -> None:
    """For programs: docs/reference/json.md."""
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))


def answer(document: Document, form: str, show: Callable[[Document], None]) -> None:
    """As --format says."""
    if form == "json":
        echo_json(document)
    else:
        show(document)


def screen() -> Console:
    """Where tables are printed."""
    from rich import console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _ENDLESS
    return console.Console(markup=False, emoji=False, highlight=False, width=width)


def moment(at: datetime.datetime | None, *, exact: bool = False) -> str:
    """2026-01-31 21:00:00 KST; nothing for None."""
    if at is None:
        return ""
    local = at.astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}{f'.{local.microsecond // 1000:03d}' if exact else ''} {local:%Z}"


def duration(seconds: int | None) -> str:
    """1-02:03:04, as Slurm writes it."""
    if seconds is None:
        return ""
    days, rest = divmod(seconds, 86400)
    return f"{f'{days}-' if days else ''}{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def columns(*headings: str, title: str = "", right: tuple[str, ...] = ()) -> Table:
    """An empty table; those on the right are numbers."""
    from rich import table

    made = table.Table(box=None, pad_edge=False, title=title or None, title_justify="left")
    for heading in headings:
        side: Literal["left", "right"] = "right" if heading in right else "left"
        made.add_column(heading, overflow="fold", justify=side, min_width=len(heading))
    return made


def styled(words: str, style: str) -> Text:
    """A cell in a colour."""
    from rich import text

    return text.Text(words, style=style, overflow="fold")
