"""Words → settings, like getopt_long(3) in sbatch: unique prefixes of long names, bundled short flags, values
attached or in the next word, and an end at the first word that is not an option.

sbatch stops at the first error; this goes on, so that all are reported at once.
"""

from __future__ import annotations

import msgspec

from penstock.model.jobspec import Provenance
from penstock.sbatch import nearest, options
from penstock.sbatch.diagnostics import Place, Report


class Token(msgspec.Struct, frozen=True):
    """A word of a directive or of the command line."""

    text: str
    place: Place


class Setting(msgspec.Struct, frozen=True):
    """A given option; `value` is None for flags and for omitted optional values.

    `meant` is what the author probably meant: --mem=4G for -mem=4G, which is -m with em=4G.
    """

    option: options.Option
    value: str | None
    place: Place
    provenance: Provenance
    meant: str = ""


class Parsed(msgspec.Struct, frozen=True):
    """The settings in order, and the words after the last option."""

    settings: tuple[Setting, ...]
    rest: tuple[Token, ...]


class Parser:
    def __init__(self, table: options.Table, report: Report, origin: str) -> None:
        self._table = table
        self._report = report
        self._origin = origin
        self._settings: list[Setting] = []

    def parse(self, tokens: list[Token]) -> Parsed:
        index = 0
        while index < len(tokens):
            text = tokens[index].text
            if text == "--":
                return Parsed(tuple(self._settings), tuple(tokens[index + 1 :]))
            if text.startswith("--"):
                index = self._long(tokens, index)
            elif text.startswith("-") and len(text) > 1:
                index = self._short(tokens, index)
            else:
                return Parsed(tuple(self._settings), tuple(tokens[index:]))
        return Parsed(tuple(self._settings), ())

    def _long(self, tokens: list[Token], index: int) -> int:
        token = tokens[index]
        name, equals, value = token.text[2:].partition("=")
        matches = self._table.matching(name)
        if len(matches) != 1:
            self._unknown_long(token, name, matches)
            return index + 1
        option = matches[0]
        if option.argument == "none":
            if equals:
                message, hint = f"--{option.name} takes no value", f"write only --{option.name}"
                self._report.error(token.place, "unexpected-value", message, hint)
            self._add(option, None, token, token.text)
            return index + 1
        if equals or option.argument == "optional":
            self._add(option, value if equals else None, token, token.text)
            return index + 1
        return self._value_from_next(option, tokens, index, f"--{option.name}")

    def _short(self, tokens: list[Token], index: int) -> int:
        token = tokens[index]
        position = 1
        while position < len(token.text):
            letter = token.text[position]
            option = self._table.by_short.get(letter)
            if option is None:
                self._unknown_short(token, letter)
                return index + 1
            position += 1
            if option.argument == "none":
                self._add(option, None, token, f"-{letter}")
                continue
            attached = token.text[position:]
            if attached or option.argument == "optional":
                meant = self._meant(token.text) if position == 2 else ""
                self._add(option, attached or None, token, f"-{letter}", meant=meant)
                return index + 1
            return self._value_from_next(option, tokens, index, f"-{letter}")
        return index + 1

    def _meant(self, text: str) -> str:
        """The same with two dashes, where that is an option."""
        return f"-{text}" if text[1:].partition("=")[0] in self._table.by_name else ""

    def _value_from_next(self, option: options.Option, tokens: list[Token], index: int, written: str) -> int:
        token = tokens[index]
        if index + 1 >= len(tokens):
            hint = f"write {_example(option, written)}"
            self._report.error(token.place, "missing-value", f"{written} needs a value", hint)
            return index + 1
        value = tokens[index + 1]
        if value.place.line != token.place.line or value.text.startswith("--"):
            message = f"{written} has no value on its line; sbatch takes the next word, {value.text!r}"
            hint = f"write {_example(option, written)}"
            self._report.warning(token.place, "value-swallowed", message, hint)
        self._add(option, value.text, token, written, at=value.place)
        return index + 2

    def _add(
        self,
        option: options.Option,
        value: str | None,
        token: Token,
        written: str,
        *,
        at: Place | None = None,
        meant: str = "",
    ) -> None:
        name = written.partition("=")[0]
        place = at or _value_place(token, written)
        provenance = Provenance(self._origin, name, token.place.line, token.place.column)  # type: ignore[arg-type]  # the caller passes one of the four origins
        self._settings.append(Setting(option, value, place, provenance, meant))

    def _unknown_long(self, token: Token, name: str, matches: tuple[options.Option, ...]) -> None:
        if matches:
            candidates = ", ".join(f"--{option.name}" for option in matches)
            message = f"--{name} is ambiguous: {candidates}"
            self._report.error(token.place, "ambiguous-option", message, "write one of them out")
            return
        other = nearest.other_release(name, self._table.release)
        if other:
            self._report.error(token.place, "option-not-in-release", f"--{name} {other}")
            return
        hint = "" if self._report.long_enough else nearest.hint_for_option(name, self._table)
        self._report.error(token.place, "unknown-option", f"sbatch has no option --{name}", hint)

    def _unknown_short(self, token: Token, letter: str) -> None:
        message = f"sbatch has no option -{letter}"
        long_name = token.text[1:].partition("=")[0]
        if len(long_name) > 1 and len(self._table.matching(long_name)) == 1:
            hint = f"long options have two dashes: -{token.text}"
        else:
            hint = nearest.hint_for_short(letter, self._table)
        self._report.error(token.place, "unknown-option", message, hint)


def _value_place(token: Token, written: str) -> Place:
    """The place of an attached value: after the equals sign or the letter."""
    if not token.place.line:
        return token.place
    _, equals, _ = written.partition("=")
    offset = len(written.partition("=")[0]) + 1 if equals else 0
    return Place(token.place.line, token.place.column + offset)


def _example(option: options.Option, written: str) -> str:
    return f"{written}=VALUE" if written.startswith("--") else f"{written} VALUE"
