"""The environment that a step's tasks begin with: the caller's, as --export and its variables select it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

_ALWAYS: Final = (b"SLURM", b"_SLURM_SPANK_OPTION_")  # beginnings of names that every form of --export keeps
_QUOTES: Final = b"'\""


def selected(environment: Mapping[bytes, bytes], export: bytes | None) -> tuple[dict[bytes, bytes], bool]:
    """The selected variables, and whether they are all of the caller's.

    A variable of the caller wins over a value in the list wherever it is kept itself: --export=ALL,A=2 does
    not change an A that is set.
    """
    if export is None:
        return dict(environment), True
    found: dict[bytes, bytes] = {}
    everything = False
    for item in items(export):
        if item.lower() == b"none":
            break
        everything = everything or item.lower() == b"all"
        name, equals, value = item.partition(b"=")
        if name and equals:
            found[name] = value
        elif name in environment:
            found[name] = environment[name]
    kept = {name: value for name, value in environment.items() if everything or name.startswith(_ALWAYS)}
    return found | kept, everything


def items(export: bytes) -> Iterator[bytes]:
    """The parts between commas; quotes protect commas, and are dropped if they enclose a whole part."""
    start, open_quotes = 0, [False, False]
    for at, letter in enumerate(export):
        if letter in _QUOTES:
            kind = _QUOTES.index(letter)
            open_quotes[kind] = not open_quotes[kind]
        elif letter == ord(b",") and not any(open_quotes):
            yield _unquoted(export[start:at])
            start = at + 1
    if start < len(export):
        yield export[start:] if any(open_quotes) else _unquoted(export[start:])


def improper(export: bytes) -> bytes:
    """The part with a quote that has no end, empty if there is none."""
    *_, last = (b"", *items(export))
    return last if last.count(b"'") % 2 or last.count(b'"') % 2 else b""


def _unquoted(part: bytes) -> bytes:
    enclosed = len(part) > 1 and part[0] == part[-1] and part[0] in _QUOTES
    return part[1:-1] if enclosed else part
