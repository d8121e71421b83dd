"""The table of srun's options, read from srunoptions.txt.

It is an allow-list: an option or variable that it does not name as native never reaches the real srun.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, cast

import msgspec

from penstock.model import releases

Argument = Literal["none", "required", "optional"]
Treatment = Literal["native", "pod", "refused", "ignored"]

ALIASES: Final = {"cpu_bind": "cpu-bind", "tasks-per-node": "ntasks-per-node", "pack-group": "het-group"}
"""Second names of an option, which getopt_long does not tell from the first."""

_ARGUMENTS: Final[dict[str, Argument]] = {"-": "none", "=": "required", "?": "optional"}
_VARIABLE: Final = re.compile(r"(\w+)(?:>=([\d.]+))?(?:<=([\d.]+))?")


class Variable(msgspec.Struct, frozen=True):
    """An environment variable, and the releases that read it."""

    name: str
    since: str
    until: str

    def read_by(self, release: str) -> bool:
        return _within(release, self.since, self.until)


class Option(msgspec.Struct, frozen=True):
    """A row of the table. Rows without a name are variables that are no option."""

    name: str
    short: str
    argument: Argument
    environment: tuple[Variable, ...]
    since: str
    until: str
    treatment: Treatment
    note: str
    of_pyxis: bool

    @property
    def key(self) -> str:
        """The name under which its setting is stored."""
        return ALIASES.get(self.name, self.name)

    def known_in(self, release: str) -> bool:
        return _within(release, self.since, self.until)


class Table(msgspec.Struct, frozen=True):
    """The options of one release."""

    release: str
    options: tuple[Option, ...]
    by_name: dict[str, Option]
    by_short: dict[str, Option]

    def matching(self, prefix: str) -> tuple[Option, ...]:
        """The option meant by --prefix; several if it is ambiguous.

        Options of Pyxis count only where srun itself has none, because few sites install it.
        """
        exact = self.by_name.get(prefix)
        if exact is not None:
            return (exact,)
        found = [option for option in self.by_name.values() if option.name.startswith(prefix)]
        found = [option for option in found if not option.of_pyxis] or found
        first = found[:1]
        return (*first, *(option for option in found[1:] if option.key != first[0].key))


@lru_cache(maxsize=1)
def every_option() -> tuple[Option, ...]:
    folder = __file__.rpartition("/")[0]
    with open(f"{folder}/srunoptions.txt", encoding="utf-8") as lines:  # noqa: PTH123 - as in sbatch/options.py
        return tuple(_row(line.rstrip("\n")) for line in lines if not line.startswith("#"))


@lru_cache(maxsize=8)
def table(release: releases.Release) -> Table:
    """The options of srun in this release."""
    text = releases.text(release)
    known = tuple(option for option in every_option() if option.known_in(text))
    return Table(
        text,
        known,
        {option.name: option for option in known if option.name},
        {option.short: option for option in known if option.short},
    )


def _row(line: str) -> Option:
    name, short, argument, environment, since, until, treatment, note = line.split("|")
    variables = tuple(map(_variable, environment.split()))
    kind = cast("Treatment", treatment)
    plain = name.removeprefix("+")
    return Option(plain, short, _ARGUMENTS[argument], variables, since, until, kind, note, plain != name)


def _variable(text: str) -> Variable:
    match = _VARIABLE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} in srunoptions.txt is not a variable")
    return Variable(match[1], match[2] or "", match[3] or "")


def _within(release: str, since: str, until: str) -> bool:
    return (not since or since <= release) and (not until or release <= until)
