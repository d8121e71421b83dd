"""srun's words → settings and the command, as getopt_long(3) reads them in srun.

Unique prefixes of long names, bundled letters, optional values only glued on, and an end at the first word
that is no option. The first wrong word ends the reading, with the message of the C library.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.calls import srunoptions


class Setting(msgspec.Struct, frozen=True):
    """A given option; the value is None for flags and for omitted optional values."""

    option: srunoptions.Option
    value: bytes | None


class Parsed(msgspec.Struct, frozen=True):
    """The settings in order, the words after the last option, and what is wrong with a word between them."""

    settings: tuple[Setting, ...]
    command: tuple[bytes, ...]
    wrong: bytes = b""


class _Wrong(Exception):
    """The message of the C library about a word."""


def parse(words: Sequence[bytes], table: srunoptions.Table) -> Parsed:
    """Read srun's words, without its own name."""
    reader = _Reader(words, table)
    try:
        reader.read()
    except _Wrong as wrong:
        return Parsed(tuple(reader.settings), (), wrong.args[0])
    return Parsed(tuple(reader.settings), tuple(words[reader.position :]))


class _Reader:
    def __init__(self, words: Sequence[bytes], table: srunoptions.Table) -> None:
        self._words = words
        self._table = table
        self.settings: list[Setting] = []
        self.position = 0

    def read(self) -> None:
        while self.position < len(self._words):
            word = self._words[self.position]
            if not word.startswith(b"-") or word == b"-":
                return
            self.position += 1
            if word == b"--":
                return
            if word.startswith(b"--"):
                self._long(word[2:])
            else:
                self._letters(word[1:])

    def _long(self, text: bytes) -> None:
        name, equals, value = text.partition(b"=")
        option = self._meant(name, text)
        if option.argument == "none" and equals:
            raise _Wrong(b"option '--%b' doesn't allow an argument" % option.name.encode())
        if option.argument == "required" and not equals:
            value = self._next(b"option '--%b' requires an argument" % option.name.encode())
            equals = b"="
        self.settings.append(Setting(option, value if equals else None))

    def _meant(self, name: bytes, text: bytes) -> srunoptions.Option:
        found = self._table.matching(name.decode("ascii", "replace"))
        if not found:
            raise _Wrong(b"unrecognized option '--%b'" % text)
        if len(found) > 1:
            names = b" ".join(b"'--%b'" % option.name.encode() for option in found)
            raise _Wrong(b"option '--%b' is ambiguous; possibilities: %b" % (text, names))
        return found[0]

    def _letters(self, letters: bytes) -> None:
        for index in range(len(letters)):
            letter = letters[index : index + 1]
            option = self._table.by_short.get(letter.decode("latin-1"))
            if option is None:
                raise _Wrong(b"invalid option -- '%b'" % letter)
            if option.argument == "none":
                self.settings.append(Setting(option, None))
                continue
            glued: bytes | None = letters[index + 1 :] or None
            if glued is None and option.argument == "required":
                glued = self._next(b"option requires an argument -- '%b'" % letter)
            self.settings.append(Setting(option, glued))
            return

    def _next(self, otherwise: bytes) -> bytes:
        if self.position >= len(self._words):
            raise _Wrong(otherwise)
        self.position += 1
        return self._words[self.position - 1]
