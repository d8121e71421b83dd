"""Finds programs in a batch script that need Slurm, the host or privileges, and so do not work in a pod.

It looks for words in command position and is not a shell: calls that are built at run time are missed, calls
in branches that are never taken are reported. Therefore findings are remarks, never errors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from penstock.model.jobspec import JobSpec
from penstock.sbatch import options, source
from penstock.sbatch.diagnostics import Report
from penstock.sbatch.patterns import Pattern

SHELLS: Final = ("sh", "bash", "dash", "ksh", "zsh", "csh", "tcsh", "ash")
LONGEST_LINE: Final = 2000
_HEREDOC = Pattern(r"<<-?\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_START: Final = (
    r"(?:^|[;&|(`{]|\b(?:then|do|else|if|elif|while|until|time|exec|nohup|command|env|eval|!)(?=\s))\s*"
    r"(?:[A-Za-z_][A-Za-z0-9_]*=\S*\s+)*(?:[A-Za-z0-9_./-]*/)?"
)


class Calls(msgspec.Struct, frozen=True):
    """Calls with the same effect in a pod: programs, line numbers, and that effect."""

    names: tuple[str, ...]
    lines: tuple[int, ...]
    becomes: str


class Row(msgspec.Struct, frozen=True):
    """A line of commands.txt."""

    names: tuple[str, ...]
    when: str
    becomes: str


def calls(data: bytes, job: JobSpec) -> list[Calls]:
    """Calls in the order of the script; none if the script is not run or not a shell script."""
    if job.pod.command or job.pod.own_entrypoint or job.pod.script or not _for_a_shell(job.interpreter):
        return []
    found: dict[Row, list[tuple[int, str]]] = {}
    for number, line in _lines(source.read(data, Report()).text):
        for match in _pattern().finditer(line):
            row = next(row for row in rows() if match.group(1) in row.names)
            if row.when == "any" or job.nodes.minimum > 1:
                found.setdefault(row, []).append((number, match.group(1)))
    return [
        Calls(
            names=tuple(dict.fromkeys(name for _, name in places)),
            lines=tuple(dict.fromkeys(number for number, _ in places)),
            becomes=row.becomes,
        )
        for row, places in found.items()
    ]


def _for_a_shell(interpreter: str) -> bool:
    words = interpreter.split()
    if words and words[0].endswith("/env"):
        words = [word for word in words[1:] if not word.startswith("-")]
    return bool(words) and words[0].rpartition("/")[2] in SHELLS


def _lines(text: str) -> list[tuple[int, str]]:
    """Lines that a shell would run, without comments and here-documents."""
    kept = []
    until = ""
    for number, line in enumerate(text.split("\n"), 1):
        if until:
            until = "" if line.strip() == until else until
            continue
        bare = line[:LONGEST_LINE].strip()
        if bare.startswith("#"):
            continue
        kept.append((number, bare))
        if heredoc := _HEREDOC.search(bare):
            until = heredoc.group(2)
    return kept


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    fields = (line.split("|") for line in options.lines_of("commands.txt"))
    return tuple(Row(tuple(names.split()), when, becomes) for names, when, becomes in fields)


@lru_cache(maxsize=1)
def _pattern() -> Pattern:
    names = "|".join(name for row in rows() for name in row.names)
    return Pattern(rf"{_START}({names})(?=[\s;&|)]|$)")
