"""Splits a directive line into words like sbatch.

The rules were found by testing sbatch 22.05, and are not those of a shell:

* a backslash escapes the next character, inside quotes, too, but not a blank, which ends the word (until a
  later release: `escaped-blank` in rules.txt);
* an unquoted `#` ends the line, even in the middle of a word;
* an empty word (`''`) ends the line: the rest is never read;
* `hetjob` (or `packjob`) ends the line; at its start it opens the next component of a heterogeneous job;
* a word that begins with `:` is an error, and so is an unclosed quote.

Runs of plain characters are matched by one regular expression: a line of megabytes takes milliseconds.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.sbatch.patterns import Pattern

BLANK: Final = " \t\n\v\f\r"
"""isspace() of the C locale; other characters, such as a no-break space, are part of a word."""

MOST_WORDS: Final = 10_000
"""More than people write; the limit keeps a line of megabytes from taking seconds."""

SEPARATORS: Final = ("hetjob", "packjob")

_PLAIN = Pattern(r"""[^ \t\n\v\f\r\\'"#]+""")
_QUOTED: Final = {"'": Pattern(r"[^\\']+"), '"': Pattern(r'[^\\"]+')}
_BLANKS = Pattern(r"[ \t\n\v\f\r]*")


class Word(msgspec.Struct, frozen=True):
    """A word and its offset in the line, from 0."""

    text: str
    offset: int


class Words(msgspec.Struct, frozen=True):
    """The words of a line; `fault` is the code of what ended it early, `at` its offset."""

    words: tuple[Word, ...]
    separator: str = ""
    fault: str = ""
    detail: str = ""
    at: int = 0


def split(line: str, start: int, *, escaped_blanks: bool = False) -> Words:
    """Split `line` from `start`, which is just after the magic word."""
    words: list[Word] = []
    position = _skip_blanks(line, start)
    opening = _separator(line, position)
    if opening:
        return Words((), separator=opening, at=position)
    while position < len(line) and line[position] != "#":
        if line[position] == ":":
            return Words(tuple(words), fault="unexpected-colon", at=position)
        stray = _separator(line, position)
        if stray:
            return Words(tuple(words), fault="stray-separator", detail=stray, at=position)
        text, end, open_quote = _word(line, position, escaped_blanks)
        if open_quote:
            return Words(tuple(words), fault="unmatched-quote", detail=open_quote, at=position)
        if not text:
            return Words(tuple(words), fault=_ended_by(line, end), at=position)
        words.append(Word(text, position))
        if len(words) > MOST_WORDS:
            return Words(tuple(words), fault="too-many-words", at=position)
        position = _skip_blanks(line, end)
    return Words(tuple(words))


def _ended_by(line: str, end: int) -> str:
    """An empty word is a fault only if something follows it."""
    rest = line[end:].strip(BLANK)
    return "empty-word" if rest and not rest.startswith("#") else ""


def _separator(line: str, position: int) -> str:
    for name in SEPARATORS:
        if line.startswith(name, position):
            after = line[position + len(name) : position + len(name) + 1]
            if not after or after in BLANK:
                return name
    return ""


def _skip_blanks(line: str, position: int) -> int:
    match = _BLANKS.match(line, position)
    return match.end() if match else position


def _word(line: str, position: int, escaped_blanks: bool) -> tuple[str, int, str]:
    """The word at `position`: its text, its end, and an unclosed quote, if any."""
    parts: list[str] = []
    end = len(line)
    while position < end:
        char = line[position]
        if char in BLANK or char == "#":
            break
        if char == "\\":
            position, taken = _escaped(line, position, escaped_blanks)
            parts.append(taken)
        elif char in _QUOTED:
            taken, position, closed = _quoted(line, position)
            parts.append(taken)
            if not closed:
                return "", end, char
        else:
            match = _PLAIN.match(line, position)
            assert match is not None  # noqa: S101 - every character that is not special is plain
            parts.append(match.group())
            position = match.end()
    return "".join(parts), position, ""


def _escaped(line: str, position: int, escaped_blanks: bool) -> tuple[int, str]:
    following = line[position + 1 : position + 2]
    if not following or (following in BLANK and not escaped_blanks):
        return position + 1, ""
    return position + 2, following


def _quoted(line: str, position: int) -> tuple[str, int, bool]:
    quote = line[position]
    inside = _QUOTED[quote]
    parts: list[str] = []
    position += 1
    while position < len(line):
        char = line[position]
        if char == quote:
            return "".join(parts), position + 1, True
        if char == "\\":
            parts.append(line[position + 1 : position + 2])
            position += 2
            continue
        match = inside.match(line, position)
        assert match is not None  # noqa: S101 - neither quote nor backslash, so the run is not empty
        parts.append(match.group())
        position = match.end()
    return "".join(parts), position, False
