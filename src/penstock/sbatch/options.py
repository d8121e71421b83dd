"""The table of sbatch's options, read from options.txt.

The parser uses the table, and docs/compatibility.md is generated from it. Names are looked up like in
getopt_long: an exact name first, else a prefix that matches exactly one option of the Slurm release.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, cast

import msgspec

Argument = Literal["none", "required", "optional"]
Treatment = Literal["native", "pod", "approximated", "refused", "ignored"]

RELEASES: Final = ("22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05")
DEFAULT_RELEASE: Final = "22.05"
ALIASES: Final = {
    "cluster": "clusters",
    "tasks-per-node": "ntasks-per-node",
    "ntasks-per-tres": "ntasks-per-gpu",
}
"""Second names of an option."""

_ARGUMENTS: Final[dict[str, Argument]] = {"-": "none", "=": "required", "?": "optional"}


class Option(msgspec.Struct, frozen=True):
    """A row of the table."""

    name: str
    short: str
    argument: Argument
    grammar: str
    environment: tuple[str, ...]
    since: str
    until: str
    treatment: Treatment
    note: str

    @property
    def key(self) -> str:
        """The name under which its setting is stored."""
        return ALIASES.get(self.name, self.name)

    def known_in(self, release: str) -> bool:
        return (not self.since or self.since <= release) and (not self.until or release <= self.until)


class Table(msgspec.Struct, frozen=True):
    """The options of one release."""

    release: str
    by_name: dict[str, Option]
    by_short: dict[str, Option]

    def matching(self, prefix: str) -> tuple[Option, ...]:
        """The option with this name, else those whose name begins with it."""
        exact = self.by_name.get(prefix)
        if exact is not None:
            return (exact,)
        return tuple(option for name, option in self.by_name.items() if name.startswith(prefix))


@lru_cache(maxsize=1)
def every_option() -> tuple[Option, ...]:
    return tuple(map(_row, lines_of("options.txt")))


def lines_of(table: str) -> list[str]:
    """The lines of a table of this package, without comments."""
    folder = __file__.rpartition("/")[0]
    with open(f"{folder}/{table}", encoding="utf-8") as lines:  # noqa: PTH123 - pathlib costs 3 ms of start-up
        return [line.rstrip("\n") for line in lines if not line.startswith(("#", "\n"))]


def _row(line: str) -> Option:
    name, short, argument, grammar, environment, since, until, treatment, note = line.split("|")
    kind, variables = _ARGUMENTS[argument], tuple(environment.split())
    return Option(name, short, kind, grammar, variables, since, until, cast("Treatment", treatment), note)


@lru_cache(maxsize=len(RELEASES))
def table(release: str = DEFAULT_RELEASE) -> Table:
    """The options of sbatch in this release."""
    known = [option for option in every_option() if option.known_in(release)]
    return Table(
        release,
        {option.name: option for option in known},
        {option.short: option for option in known if option.short},
    )


def release_of(version: str) -> str:
    """The release in our table for a version such as 24.11.5; newer ones count as the newest."""
    wanted = ".".join(version.split(".")[:2])
    fitting = [release for release in RELEASES if release <= wanted]
    return fitting[-1] if fitting else RELEASES[0]
