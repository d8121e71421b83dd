"""Slurm's host lists: n[1-3,07],login ↔ n1 n2 n3 n07 login, in Slurm's order."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from penstock import errors

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.ASCII | re.DOTALL)
_RANGE = re.compile(r"(\d+)-(\d+)")
_DIGITS = 18  # at most, for numbers in names, including leading zeros
_LIMIT = 100_000  # more than any cluster has: a typo must not exhaust memory


def expand(hostlist: str) -> tuple[str, ...]:
    """The names in the list. SlurmError if it is invalid."""
    names = tuple(
        itertools.islice((name for part in _parts(hostlist) for name in _expand_part(part)), _LIMIT + 1)
    )
    if len(names) > _LIMIT:
        raise errors.SlurmError(f"host list stands for more than {_LIMIT} nodes: {hostlist[:80]}")
    return names


def _parts(hostlist: str) -> Iterator[str]:
    """Split at commas outside of brackets."""
    depth = start = 0
    for at, character in enumerate(hostlist):
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            raise errors.SlurmError(f"brackets do not match in host list: {hostlist[:80]}")
        if character == "," and depth == 0:
            yield hostlist[start:at]
            start = at + 1
    if depth:
        raise errors.SlurmError(f"brackets do not match in host list: {hostlist[:80]}")
    if hostlist:
        yield hostlist[start:]


def _expand_part(part: str) -> Iterator[str]:
    opening = part.find("[")
    if opening < 0:
        if not part:
            raise errors.SlurmError("empty name in a host list")
        yield part
        return
    closing = part.index("]", opening)
    for number in _numbers(part[opening + 1 : closing]):
        for rest in _expand_part(part[closing + 1 :]) if part[closing + 1 :] else [""]:
            yield f"{part[:opening]}{number}{rest}"


def _numbers(ranges: str) -> Iterator[str]:
    for piece in ranges.split(","):
        match = _RANGE.fullmatch(piece)
        if not piece:
            raise errors.SlurmError(f"an empty range in a host list: [{ranges[:80]}]")
        if match is None:
            yield piece
            continue
        if len(match[2]) > _DIGITS or len(match[1]) > _DIGITS:
            raise errors.SlurmError(f"a number of more than {_DIGITS} digits in a host list: {piece[:80]}")
        if int(match[1]) > int(match[2]):
            raise errors.SlurmError(f"a range in a host list goes backwards: {piece[:80]}")
        width = len(match[1])
        for number in range(int(match[1]), int(match[2]) + 1):
            yield f"{number:0{width}d}"


def fold(names: Iterable[str]) -> str:
    """The host list of these names, without duplicates; inverse of `expand`."""
    numbered: dict[tuple[str, str], dict[int, set[str]]] = {}
    plain: list[str] = []
    for name in dict.fromkeys(names):
        match = _NUMBERED.fullmatch(name)
        if match is None or len(match[2]) > _DIGITS:
            plain.append(name)
            continue
        numbered.setdefault((match[1], match[3]), {}).setdefault(len(match[2]), set()).add(match[2])
    lists = [_folded(before, after, widths) for (before, after), widths in numbered.items()]
    return ",".join([*lists, *plain])


def _folded(before: str, after: str, widths: dict[int, set[str]]) -> str:
    """Numbers with leading zeros are listed with those of the same width, others with all the rest."""
    padded = {
        width: found
        for width, found in widths.items()
        if width > 1 and any(text.startswith("0") for text in found)
    }
    loose = {int(text) for width, found in widths.items() if width not in padded for text in found}
    rows = [(width, {int(text) for text in found}) for width, found in padded.items()]
    ranges = [text for width, numbers in [(1, loose), *sorted(rows)] for text in _ranges(numbers, width)]
    inside = ",".join(ranges)
    return f"{before}[{inside}]{after}" if len(ranges) > 1 or "-" in inside else f"{before}{inside}{after}"


def _ranges(numbers: set[int], width: int) -> Iterator[str]:
    for _, run in itertools.groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        row = [number for _, number in run]
        yield f"{row[0]:0{width}d}" if len(row) == 1 else f"{row[0]:0{width}d}-{row[-1]:0{width}d}"
