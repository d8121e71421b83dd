"""What becomes of the programs that a batch script calls, when it runs in a pod: those that need Slurm, the
host or its privileges are named with their line.

A look at words in the place of a command, not a shell: a call that is built at run time is not seen, one in a
branch that is never taken is. Therefore remarks, never errors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from penstock.model.jobspec import JobSpec
from penstock.sbatch import source
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
    """Calls that meet the same fate in a pod: which programs, on which lines, and what becomes of them."""

    names: tuple[str, ...]
    lines: tuple[int, ...]
    becomes: str


class Row(msgspec.Struct, frozen=True):
    """One line of commands.txt."""

    names: tuple[str, ...]
    when: str
    becomes: str


def calls(data: bytes, job: JobSpec) -> list[Calls]:
    """In the order of the script; nothing for scripts that are not run, or that no shell reads."""
    if job.pod.command or job.pod.own_entrypoint or job.pod.script or not _for_a_shell(job.interpreter):
        return []
    found: dict[Row, list[tuple[int, str]]] = {}
    for number, line in _lines(source.read(data, Report()).text):
        for match in _pattern().finditer(line):
            row = _row(match.group(1))
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
    """Lines that a shell would run: no comments, no texts for other programs (<<EOF)."""
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
    """All rows of commands.txt."""
    beside = __file__.rpartition("/")[0]
    with open(f"{beside}/commands.txt", encoding="utf-8") as lines:  # noqa: PTH123 - as options.py does it
        parts = [line.rstrip("\n").split("|") for line in lines if not line.startswith("#")]
    return tuple(Row(tuple(names.split()), when, becomes) for names, when, becomes in parts)


def _row(name: str) -> Row:
    return next(row for row in rows() if name in row.names)


@lru_cache(maxsize=1)
def _pattern() -> Pattern:
    names = "|".join(name for row in rows() for name in row.names)
    return Pattern(rf"{_START}({names})(?=[\s;&|)]|$)")
