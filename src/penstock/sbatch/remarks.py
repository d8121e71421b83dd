"""Diagnostics about lines, words and values that sbatch refuses, ignores or reads differently than meant."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.sbatch import lexer, precedence
from penstock.sbatch.diagnostics import Place, Report
from penstock.sbatch.getopt import Setting, Token
from penstock.sbatch.lexer import MOST_WORDS, Words
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.source import K8S_MAGIC, MAGIC, Line, Script
from penstock.sbatch.values.problem import Problem

_K8S_WORD = Pattern(r"^[ \t#]*K8S[_ \t\-]", re.IGNORECASE)
_SWITCHED_OFF = Pattern(r"[ \t]*#[ \t]*#")
_VARIABLE = Pattern(r"\$[A-Za-z_{(]")
_FILES = ("output", "error", "input")


def about_lines(script: Script, report: Report) -> None:
    """Directives after the first command, and lines that only look like directives."""
    for line in script.late:
        what = line.text[:40].partition(" ")[0].partition("=")[0]
        command = script.first_command
        message = f"{what} after the first command (line {command.number}) is ignored"
        hint = f"move it above line {command.number}: {shorten(command.text.strip())}"
        report.warning(Place(line.number, 1), "directive-after-command", message, hint)
    for line in script.almost:
        _about_almost(line, report)


def _about_almost(line: Line, report: Report) -> None:
    """Warn, because the line has no effect; with two # it may be disabled on purpose."""
    text = line.text.strip(lexer.BLANK)
    word, meant = text.partition(" -")[0], MAGIC
    if _K8S_WORD.search(word):
        word, _, value = text.partition("=")
        name = _K8S_WORD.sub("", word).strip(lexer.BLANK).upper().replace("-", "_")
        meant = f"{K8S_MAGIC}{name}={shorten(value.strip(lexer.BLANK))}"
    message = f"{shorten(word)!r} is not read: for Slurm the line is a comment"
    if text.startswith((MAGIC, K8S_MAGIC)):
        message = "blanks before the #: for Slurm the line is a comment"
    hint = f"if a directive is meant, write {meant} at the start of the line"
    say = report.info if _SWITCHED_OFF.match(line.text) else report.warning
    say(Place(line.number, 1), "almost-directive", message, hint)


def about_values(given: Iterable[Setting], report: Report) -> None:
    """Variables and ~ in directives, which sbatch does not expand."""
    for setting in given:
        option, text = setting.option, setting.value or ""
        found = _VARIABLE.search(text)
        if found is None and not (option.grammar == "path" and text.startswith("~")):
            continue
        what = "~" if found is None else "variables"
        message = f"--{option.name}: Slurm does not expand {what} in directives: {shorten(text)!r} stays"
        hint = f"write the value, or give it on the command line: sbatch --{option.name}=..."
        if option.name in _FILES:
            hint += "; %u is your name, %x the job's, %j its number"
        report.warning(setting.place, "not-expanded", message, hint)


def about_words(line: Line, words: Words, report: Report) -> None:
    """What ended a directive line early."""
    rest, hint = "the rest of the line is ignored", ""
    if words.fault == "unmatched-quote":
        say, message = report.error, f"the {words.detail} is not closed on this line"
        hint = "close it, or escape it with \\"
    elif words.fault == "unexpected-colon":
        say, message = report.error, "a word must not begin with a colon"
        hint = "quote it if it is a value"
    elif words.fault == "too-many-words":
        say, message = report.error, f"more than {MOST_WORDS} words on one line"
    elif words.fault == "stray-separator":
        say, message = report.warning, f"{words.detail} in the middle of a line: {rest}"
        hint = f"give it a line of its own: #SBATCH {words.detail}"
    elif words.fault == "empty-word":
        say, message = report.warning, f"an empty word ends the directive: {rest}"
    else:
        return
    say(Place(line.number, words.at + 1), words.fault, message, hint)


def about_stray(stray: Token, before: tuple[Setting, ...], report: Report) -> None:
    """A word in place of an option; sbatch stops there."""
    text = stray.text
    hint = ""
    last = before[-1] if before else None
    if text.startswith(("\u2013", "\u2014", "\u2212")):
        hint = f"that is a typographic dash; write --{text[1:].lstrip('-')}"
    elif "\u00a0" in text:
        hint = "it contains a no-break space; type a plain one"
    elif last is not None and last.place.line == stray.place.line:
        hint = _after_value(last, text)
    elif "=" in text and text[:1].isalpha():
        hint = f"options begin with --: --{text}"
    message = f"{shorten(text)!r} is not an option; sbatch stops reading here"
    report.error(stray.place, "stray-word", message, hint)


def _after_value(last: Setting, text: str) -> str:
    if last.value is None and last.option.argument == "none":
        return f"--{last.option.name} takes no value here"
    if last.value is None:
        return f"write --{last.option.name}={text}"
    if last.value == "=":
        return f"no blanks around the equals sign: --{last.option.name}={text}"
    two_numbers = last.value[-1:].isdigit() and text[:1].isdigit()
    if not two_numbers and not _is_value(last, f"{last.value} {text}") and _is_value(last, last.value + text):
        return f"no blanks within the value: --{last.option.name}={last.value}{text}"
    return f'quote values with blanks: --{last.option.name}="{last.value} {text}"'


def _is_value(setting: Setting, text: str) -> bool:
    try:
        precedence.read(setting.option, text)
    except Problem:
        return False
    return True


def shorten(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
