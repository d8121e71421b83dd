"""The command line of a running sbatch, for a check inside it (cli_filter).

sbatch has already accepted it, so options that we do not know, such as those of SPANK plugins, are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.sbatch import options, precedence
from penstock.sbatch.diagnostics import Place, Report
from penstock.sbatch.getopt import Parser, Setting, Token

_PLACE = Place(origin="command line")


def understood(words: Sequence[str], *, release: str, gres_types: tuple[str, ...] | None) -> tuple[str, ...]:
    """The known options, each with its value in one word."""
    return tuple(
        f"--{each.option.name}" if each.value is None else f"--{each.option.name}={each.value}"
        for each in _known(words, release)
        if _is_right(each, release, gres_types)
    )


def _known(words: Sequence[str], release: str) -> Iterator[Setting]:
    """A word that is not an option is taken for the value of an unknown one."""
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
