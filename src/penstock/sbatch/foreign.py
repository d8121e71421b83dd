"""#PBS and #BSUB lines: sbatch reads them, too; they override #SBATCH and are overridden by the environment.

Unlike #SBATCH lines they count anywhere in the script, even after the first command. One #BSUB line disables
all #PBS lines. Each option is translated to settings of sbatch. Loaded only for scripts with such a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from penstock.model.jobspec import Provenance
from penstock.sbatch import lexer, options, pbs, remarks, rules
from penstock.sbatch.diagnostics import Place, Report
from penstock.sbatch.getopt import Parser, Setting, Token
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.source import Line
from penstock.sbatch.values.problem import Problem

_BARE_WALLTIME = Pattern(r"(?:^|,)walltime=[0-9]+(?:,|$)")
MOST_LINES: Final = 200
LONGEST_VALUE: Final = 2000
MOST_SETTINGS: Final = 1000
"""More than people write; the limits keep a script of megabytes from taking seconds."""

ARGUMENTS: Final[dict[str, options.Argument]] = {"-": "none", "=": "required"}


class Row(msgspec.Struct, frozen=True):
    """A line of foreign.txt."""

    system: str
    short: str
    long: str
    argument: str
    becomes: str
    since: str
    note: str


class ForeignParser(Parser):
    """getopt_long with the other system's options."""

    def __init__(self, system: str, release: str, report: Report) -> None:
        super().__init__(_table(system, release), report, "script")
        self._system = system

    def _unknown_long(self, token: Token, name: str, matches: tuple[options.Option, ...]) -> None:
        self._refuse(token, f"--{name}")

    def _unknown_short(self, token: Token, letter: str) -> None:
        self._refuse(token, f"-{letter}")

    def _refuse(self, token: Token, name: str) -> None:
        hint = "sbatch reads these lines, too: use #SBATCH instead, or add #SBATCH --ignore-pbs"
        message = f"sbatch does not support {name} of #{self._system}, and refuses the script"
        self._report.error(token.place, "unknown-option", message, hint)


def settings(
    lines: Sequence[Line], own: Sequence[Setting], table: options.Table, report: Report
) -> list[Setting]:
    """The lines as settings of sbatch; `own` are those of the #SBATCH lines."""
    system = "BSUB" if any(line.text.startswith("#BSUB") for line in lines) else "PBS"
    obeyed = [line for line in lines if line.text.startswith(f"#{system}")]
    if len(obeyed) > MOST_LINES:
        message = f"{len(obeyed)} #{system} lines are more than {MOST_LINES}"
        report.error(Place(obeyed[MOST_LINES].number, 1), "too-many-directives", message)
        return []
    escaped = rules.holds("escaped-blank", table.release)
    parsed = ForeignParser(system, table.release, report).parse(_tokens(obeyed, system, escaped, report))
    if parsed.rest:
        message = f"{parsed.rest[0].text!r} is not an option of #{system}; sbatch refuses the script"
        report.error(parsed.rest[0].place, "stray-word", message, "remove it, or add #SBATCH --ignore-pbs")
    gres = [setting.value or "" for setting in own if setting.option.key == "gres"]
    translation = Translation(system, table, report, gres[-1] if gres else "")
    for setting in parsed.settings:
        translation.add(setting)
        if len(translation.found) > MOST_SETTINGS:
            message = f"the #{system} lines have more than {MOST_SETTINGS} settings"
            report.error(setting.place, "too-many-directives", message)
            return []
    _announce(system, lines, obeyed, translation.found, report)
    return translation.found


def _tokens(lines: Sequence[Line], system: str, escaped: bool, report: Report) -> list[Token]:
    tokens = []
    for line in lines:
        words = lexer.split(line.text, len(system) + 1, escaped_blanks=escaped)
        if words.fault in ("unmatched-quote", "unexpected-colon", "too-many-words"):
            remarks.about_words(line, words, report)
        tokens += [Token(word.text, Place(line.number, word.offset + 1)) for word in words.words]
        if len(tokens) > lexer.MOST_WORDS:
            message = f"more than {lexer.MOST_WORDS} words in #{system} lines"
            report.error(Place(line.number, 1), "too-many-directives", message)
            return []
    return tokens


class Translation:
    """Translates settings; `gres` is the present value of --gres, to which accelerators of #PBS are added."""

    def __init__(self, system: str, table: options.Table, report: Report, gres: str) -> None:
        self.found: list[Setting] = []
        self._system = system
        self._table = table
        self._report = report
        self._gres = gres

    def add(self, setting: Setting) -> None:
        row = _row(self._system, setting.option.name)
        written = f"#{self._system} -{row.short}" if row.short else f"#{self._system} --{row.long}"
        if row.note and _misread(row, setting.value or ""):
            message = f"{written}: {row.note}"
            self._report.warning(setting.place, "foreign-meaning", message, "use #SBATCH instead")
        try:
            pairs = self._pairs(row, setting.value or "")
        except Problem as problem:
            message = f"{written}: {problem.message}"
            self._report.error(setting.place, "invalid-foreign", message, problem.hint)
            return
        origin = Provenance("script", written, setting.provenance.line, setting.provenance.column)
        for name, value in pairs:
            option = self._table.by_name[name]
            given = None if option.argument == "none" else value
            self.found.append(Setting(option, given, setting.place, origin))

    def _pairs(self, row: Row, value: str) -> list[tuple[str, str]]:
        """Options and values of sbatch for one option of the other system."""
        if len(value) > LONGEST_VALUE:
            raise Problem(f"{len(value)} characters are more than {LONGEST_VALUE}")
        if row.becomes == "*" and row.short == "l":
            pairs = pbs.resources(value, self._gres)
            self._gres = next((text for name, text in reversed(pairs) if name == "gres"), self._gres)
            return pairs
        if row.becomes == "*":
            return [("dependency", value[7:])] if value.startswith("depend=") else []
        if row.becomes == "mail-type":
            value = pbs.mail_types(value)
        if row.system == "BSUB":
            value = _of_bsub(row.short, value)
        return [(row.becomes, value)] if row.becomes else []


def _misread(row: Row, value: str) -> bool:
    """Whether the two systems read this value differently."""
    if row.becomes == "time":
        return ":" in value
    return row.short != "l" or _BARE_WALLTIME.search(value) is not None


def _of_bsub(letter: str, value: str) -> str:
    if letter == "m":
        return ",".join(value.split(" "))
    if letter == "M" and value.isdigit():
        return f"{value}K"
    if letter == "n" and "," in value:
        most = value.partition(",")[2]
        if not most:
            raise Problem(f"-n {value!r} is not a valid range of task counts", "least,most")
        return most
    return value


def _announce(
    system: str, lines: Sequence[Line], obeyed: Sequence[Line], found: Sequence[Setting], report: Report
) -> None:
    """Warn once about all lines, with their translation."""
    shown = ", ".join(dict.fromkeys(_shown(setting) for setting in found)) or "nothing"
    message = f"sbatch reads #{system} lines, too, and they override #SBATCH: here they mean {shown}"
    hint = "use #SBATCH instead, or add #SBATCH --ignore-pbs"
    report.warning(Place(obeyed[0].number, 1), "foreign-directive", message, hint)
    for line in [line for line in lines if not line.text.startswith(f"#{system}")][:1]:
        message = "the #BSUB lines of this script disable its #PBS lines"
        report.warning(Place(line.number, 1), "foreign-ignored", message, "remove one of the two kinds")


def _shown(setting: Setting) -> str:
    name = setting.option.name
    return f"--{name}" if setting.value is None else f"--{name}={remarks.shorten(setting.value)}"


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    return tuple(Row(*line.split("|")) for line in options.lines_of("foreign.txt"))


def _row(system: str, name: str) -> Row:
    return next(row for row in rows() if row.system == system and name in (row.long, row.short))


@lru_cache(maxsize=4)
def _table(system: str, release: str) -> options.Table:
    known = {
        row: options.Option(
            row.long or row.short, row.short, ARGUMENTS[row.argument], "text", (), "", "", "native", ""
        )
        for row in rows()
        if row.system == system and row.since <= release
    }
    return options.Table(
        system,
        {row.long: option for row, option in known.items() if row.long},
        {row.short: option for row, option in known.items() if row.short},
    )
