"""Slurm's short form of node names: n[1-3,07],login → n1 n2 n3 n07 login, in Slurm's own order."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from penstock import errors

_RANGE = re.compile(r"(\d+)-(\d+)")
_DIGITS = 18  # of the numbers in names, leading zeros included
_LIMIT = 100_000  # more names than any cluster has: a typo must not fill the memory


def expand(hostlist: str) -> tuple[str, ...]:
    """Every name the list stands for; SlurmError when it is not a host list."""
    names = tuple(
        itertools.islice((name for part in _parts(hostlist) for name in _expand_part(part)), _LIMIT + 1)
    )
    if len(names) > _LIMIT:
        raise errors.SlurmError(f"host list stands for more than {_LIMIT} nodes: {hostlist[:80]}")
    return names


def _parts(hostlist: str) -> Iterator[str]:
    """Split at commas outside brackets."""
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
