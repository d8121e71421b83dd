"""The command line of an sbatch that has read it already, for a check that runs inside that sbatch.

What stands there is right: sbatch would have ended before. So whatever we do not understand, such as the
options of a site's SPANK plugins, is left out instead of being complained about; the rest is in force over
what the script says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.sbatch import options, precedence
from penstock.sbatch.diagnostics import Place, Report
from penstock.sbatch.getopt import Parser, Setting, Token

_PLACE = Place(origin="command line")


def understood(words: Sequence[str], *, release: str, gres_types: tuple[str, ...] | None) -> tuple[str, ...]:
    """Those of the words that we know, each option with its value in one word."""
    return tuple(
        f"--{each.option.name}" if each.value is None else f"--{each.option.name}={each.value}"
        for each in _known(words, release)
        if _is_right(each, release, gres_types)
    )


def _known(words: Sequence[str], release: str) -> Iterator[Setting]:
    """A word that is no option is the value of one we do not know."""
    table = options.table(release)
    rest: Sequence[Token] = [Token(word, _PLACE) for word in words]
    while rest:
        parsed = Parser(table, Report(), "command line").parse(list(rest))
        yield from parsed.settings
        rest = parsed.rest[1:]


def _is_right(setting: Setting, release: str, gres_types: tuple[str, ...] | None) -> bool:
    report = Report()
    precedence.resolve((setting,), report, gres_types, release)
    return not report.failed
