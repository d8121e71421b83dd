"""srun's --multi-prog: a file that gives each task a program of its own.

The file is read twice, as Slurm does: once as a whole, for the tasks it names, and once for each task's
words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from penstock.model import releases

NO_PROGRAM: Final = b"No executable program specified for this task"
NO_PROGRAM_CODE: Final = 2
"""What such a task says and ends with."""

_LONGEST_LINE: Final = 16 * 1024 - 2
_LARGEST: Final = 60_000
_LARGEST_LATER: Final = 4 * 1024 * 1024
_LATER: Final[releases.Release] = (25, 5)
_BLANK: Final = b" \t\n\v\f\r"
_RANGE: Final = re.compile(rb"(\d{0,9})(?:-(\d{0,9}))?")
_MOST_TASKS: Final = 1_000_000  # far above what Slurm starts: it bounds our own work


class Line(msgspec.Struct, frozen=True):
    """The tasks of a line, and its words with the lines that continue it."""

    ranks: bytes
    words: tuple[bytes, ...]


class Configuration(msgspec.Struct, frozen=True):
    """A file that names a program for each of `tasks` tasks."""

    lines: tuple[Line, ...]
    tasks: int

    def words(self, task: int, more: tuple[bytes, ...] = ()) -> tuple[bytes, ...] | None:
        """A task's command, with the words after the file's name; None if its line cannot be read."""
        for line in self.lines:
            offset = _offset(task, line.ranks)
            if offset is not None:
                found = _Words(line.words, task, offset).read()
                return (*found, *more) if found else None
        return None


class Invalid(Exception):
    """srun's messages about the file, without its own name."""


def read(content: bytes, name: bytes, tasks: int | None, release: releases.Release) -> Configuration:
    """Check a file for a step of so many tasks; None if the file is to tell."""
    if len(content) > (_LARGEST_LATER if release >= _LATER else _LARGEST):
        raise Invalid(b"Multi_prog config file %b is too large" % name)
    claims = _Claims(tasks)
    lines = []
    for number, (text, *continuing) in _logical_lines(content):
        where = b"Line %d of configuration file %b" % (number, name)
        if len(text) > _LONGEST_LINE:
            raise Invalid(where + b" too long")
        ranks, words = _split(text)
        if not ranks or ranks.startswith(b"#"):
            continue
        if not words:
            raise Invalid(where + b" invalid")
        claims.claim(ranks, where + b" invalid")
        lines.append(Line(ranks, (words, *continuing)))
    missing = next((task for task in range(claims.tasks) if task not in claims.taken), None)
    if missing is not None:
        raise Invalid(b"Configuration file %b invalid, no record for task id %d" % (name, missing))
    return Configuration(tuple(lines), claims.tasks)


def _logical_lines(content: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A line's number, and the line with those that continue it after a backslash."""
    lines = enumerate(content.split(b"\n"), 1)
    for number, text in lines:
        together = [text]
        while together[-1].endswith(b"\\"):
            together.append(next(lines, (0, b""))[1])
        yield number, together


def _split(text: bytes) -> tuple[bytes, bytes]:
    ranks, *words = text.split(None, 1)[:2] or [b""]
    return ranks, words[0] if words else b""


class _Claims:
    """Which tasks have a program."""

    def __init__(self, tasks: int | None) -> None:
        if tasks is not None and tasks > _MOST_TASKS:
            raise Invalid(b"Invalid task count %d" % tasks)
        self.tasks = tasks or 1
        self.taken: set[int] = set()
        self._fixed = tasks is not None
        self._all = False

    def claim(self, ranks: bytes, where: bytes) -> None:
        if ranks == b"*":
            self._fixed = self._all = True
            self.taken.update(range(self.tasks))
            return
        for part in filter(None, ranks.split(b",")):
            problem = self._problem(part)
            if problem:
                raise Invalid(problem, where)

    def _problem(self, part: bytes) -> bytes:
        if self._all:
            return b"Task range specification with asterisk must be last"
        match = _RANGE.fullmatch(part)
        if match is None:
            shown = b"" if part.lstrip(b"0123456789").startswith(b"-") else b" (%b)" % part
            return b"Invalid task range specification" + shown
        low = int(match[1] or 0)
        high = low if match[2] is None else int(match[2] or 0)
        if low > high:
            return b"Invalid task range, %d-%d" % (low, high)
        if high and not match[1]:
            return b"Invalid task id, -%d < 0" % high
        if high >= self.tasks:
            if self._fixed or high >= _MOST_TASKS:
                return b"Invalid task id, %d >= ntasks" % high
            self.tasks = high + 1
        for task in range(low, high + 1):
            if task in self.taken:
                return b"Duplicate record for task %d" % task
            self.taken.add(task)
        return b""


def _offset(task: int, ranks: bytes) -> int | None:
    """A task's place among the tasks of a line; None if it is none of them."""
    if ranks == b"*":
        return task
    passed = 0
    for part in filter(None, ranks.split(b",")):
        low, dash, high = part.partition(b"-")
        first = int(low or 0)
        last = int(high or 0) if dash else first
        if first <= task <= last:
            return passed + task - first
        passed += last - first + 1
    return None


class _Words:
    """Splits a line at blanks; knows single quotes, backslashes, %t (task) and %o (offset), as Slurm does."""

    def __init__(self, lines: tuple[bytes, ...], task: int, offset: int) -> None:
        self._later: Iterator[bytes] = iter(lines[1:])
        self._text = lines[0]
        self._at = 0
        self._fields = {b"t": b"%d" % task, b"o": b"%d" % offset}

    def read(self) -> tuple[bytes, ...]:
        """Empty if a quote has no end."""
        found = []
        while self._at < len(self._text):
            word = self._word()
            if word is None:
                return ()
            found.append(word)
            while self._here() and self._here() in _BLANK:
                self._at += 1
        return tuple(found)

    def _here(self) -> bytes:
        return self._text[self._at : self._at + 1]

    def _word(self) -> bytes | None:
        word = b""
        while self._here() and self._here() not in _BLANK:
            letter = self._here()
            self._at += 1
            if letter == b"'":
                quoted = self._quoted()
                if quoted is None:
                    return None
                word += quoted
            elif letter == b"%":
                word += self._fields.get(self._here(), b"")
                self._at += 1
            elif letter != b"\\":
                word += letter
            elif self._here():
                word += self._here()
                self._at += 1
            else:
                self._continue()
        return word

    def _quoted(self) -> bytes | None:
        """To the closing quote. What a continuing line adds is lost, in Slurm too."""
        quoted, quote, _ = self._text[self._at :].partition(b"'")
        self._at += len(quoted) + 1
        while not quote:
            if not self._text.endswith(b"\\") or not self._continue():
                return None
            skipped, quote, _ = self._text.partition(b"'")
            self._at = len(skipped) + 1
        return quoted

    def _continue(self) -> bool:
        following = next(self._later, None)
        self._text, self._at = following or b"", 0
        return following is not None
