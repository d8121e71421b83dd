"""Tables for people, of words that others chose: names of jobs, reasons of nodes, complaints of programs.

Nothing in a cell is taken for markup or a symbol, so that nobody's job name colours, hides or breaks what
others see, and what does not fit is folded, not cut: the end of a reason is what one looks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # rich costs more to import than most commands take
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def screen() -> Console:
    """Where tables are printed."""
    from rich import console

    return console.Console(markup=False, emoji=False, highlight=False)


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
