"""What srun is asked for: its variables, and over them the last words of its command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from penstock.calls import getopt, srunoptions

_LISTS_OF_NODES: Final = (b"SLURM_JOB_NODELIST", b"SLURM_ARBITRARY_NODELIST")
_HARMLESS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "prolog": (b"none",),
    "epilog": (b"none",),
    "send-libs": (b"n", b"no"),
}
"""Values with which a refused option asks for nothing."""


class Settings:
    """Options and variables of one call."""

    def __init__(
        self,
        given: Sequence[getopt.Setting],
        environment: Mapping[bytes, bytes],
        table: srunoptions.Table,
        cluster: bytes,
    ) -> None:
        self.given = given
        self._environment = environment
        self._table = table
        self._cluster = cluster

    def of_line(self, name: str) -> bytes | None:
        """The last value on the command line; empty for a flag, None if it is not there."""
        found = [setting for setting in self.given if setting.option.key == name]
        return (found[-1].value or b"") if found else None

    def of_variables(self, name: str) -> bytes | None:
        """The same of the option's variables."""
        option = self._table.by_name.get(name)
        found = None
        for _, value in self._variables(option):
            found = value if option and (option.argument != "none" or switched_on(value)) else None
        return found

    def value(self, name: str) -> bytes | None:
        """The value that counts; empty for a flag, None if the option is not set."""
        of_line = self.of_line(name)
        return self.of_variables(name) if of_line is None else of_line

    def native_variables(self) -> dict[bytes, bytes]:
        """Variables for the real srun. A list of nodes with a slash would be a file on its host."""
        return {
            name: value
            for option in self._table.options
            if option.treatment == "native"
            for name, value in self._variables(option)
            if name not in _LISTS_OF_NODES or b"/" not in value
        }

    def refusals(self) -> Iterator[tuple[str, str]]:
        """Refused options and variables, each once, with the sentence of the table."""
        seen = set()
        for setting in self.given:
            option = setting.option
            if (
                option.treatment == "refused"
                and option.name not in seen
                and self._asks(option, setting.value)
            ):
                seen.add(option.name)
                yield f"--{option.name}", option.note
        for option in self._table.options:
            if option.treatment == "refused":
                for name, value in self._variables(option, also_of_components=True):
                    if self._asks(option, value):
                        yield name.decode(), option.note

    def _asks(self, option: srunoptions.Option, value: bytes | None) -> bool:
        if option.name in ("cluster", "clusters"):
            return value != self._cluster
        return value is None or value.lower() not in _HARMLESS.get(option.name, ())

    def _variables(
        self, option: srunoptions.Option | None, *, also_of_components: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The option's variables that are set and that this release reads, in srun's order."""
        for variable in option.environment if option else ():
            if variable.read_by(self._table.release):
                ends = ("", "_PACK_GROUP_0", "_HET_GROUP_0") if also_of_components else ("",)
                for name in (f"{variable.name}{end}".encode() for end in ends):
                    if name in self._environment:
                        yield name, self._environment[name]


def switched_on(value: bytes) -> bool:
    """Whether a flag's variable sets it: empty, yes, or a number other than 0."""
    return not value or value.lower() == b"yes" or leading_number(value, whole=True) != 0


def leading_number(value: bytes, *, whole: bool = False) -> int:
    """The number at a value's beginning, or that is all of it; 0 if there is none, as for strtol(3)."""
    match = re.compile(rb"\s*([+-]?\d{1,18})").match(value)
    return int(match[1]) if match and not (whole and match.end() != len(value)) else 0
