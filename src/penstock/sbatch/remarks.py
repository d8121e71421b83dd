"""What to say about lines, words and values that sbatch refuses, drops, or takes otherwise than they look."""

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
    """Directives that come too late, and lines that only look like one."""
    for line in script.late:
        what = line.text[:40].partition(" ")[0].partition("=")[0]
        command = script.first_command
        message = f"{what} after the first command (line {command.number}) is ignored"
        hint = f"move it above line {command.number}: {shorten(command.text.strip())}"
        report.warning(Place(line.number, 1), "directive-after-command", message, hint)
    for line in script.almost:
        _about_almost(line, report)


def _about_almost(line: Line, report: Report) -> None:
    """A warning, for what it asks for is lost; with two # it may have been switched off."""
    text = line.text.strip(lexer.BLANK)
    word, meant = text.partition(" -")[0], MAGIC
    if _K8S_WORD.search(word):
        word, _, value = text.partition("=")
        name = _K8S_WORD.sub("", word).strip(lexer.BLANK).upper().replace("-", "_")
        meant = f"{K8S_MAGIC}{name}={shorten(value.strip(lexer.BLANK))}"
    message = f"{shorten(word)!r} is not read: to Slurm the line is a comment"
    if text.startswith((MAGIC, K8S_MAGIC)):
        message = "blanks stand before the #: to Slurm the line is a comment"
    hint = f"write {meant} at the line's start if it is meant"
    say = report.info if _SWITCHED_OFF.match(line.text) else report.warning
    say(Place(line.number, 1), "almost-directive", message, hint)


def about_values(given: Iterable[Setting], report: Report) -> None:
    """What a shell would have put in: sbatch reads the lines before any shell does."""
    for setting in given:
        option, text = setting.option, setting.value or ""
        found = _VARIABLE.search(text)
        if found is None and not (option.grammar == "path" and text.startswith("~")):
            continue
        what = "~" if found is None else "variables"
        message = (
            f"--{option.name}: Slurm puts nothing in for {what} in a script's lines: {shorten(text)!r} stays"
        )
        hint = f"write it out, or give it on the command line: sbatch --{option.name}=..."
        if option.name in _FILES:
            hint += "; %u is your name, %x the job's, %j its number"
        report.warning(setting.place, "not-expanded", message, hint)


def about_words(line: Line, words: Words, report: Report) -> None:
    """What ended a directive line early."""
    place = Place(line.number, words.at + 1)
    if words.fault == "unmatched-quote":
        report.error(
            place,
            "unmatched-quote",
            f"the {words.detail} does not close on this line",
            "close it, or escape it with \\",
        )
    elif words.fault == "unexpected-colon":
        report.error(
            place, "unexpected-colon", "a word must not begin with a colon", "quote it if it is a value"
        )
    elif words.fault == "too-many-words":
        report.error(place, "too-many-words", f"more than {MOST_WORDS} words on one line")
    elif words.fault == "stray-separator":
        message = f"{words.detail} in the middle of a line: the rest of the line is ignored"
        report.warning(
            place, "stray-separator", message, f"give it a line of its own: #SBATCH {words.detail}"
        )
    elif words.fault == "empty-word":
        report.warning(
            place, "empty-word", "an empty word ends the directive: the rest of the line is ignored"
        )


def about_stray(stray: Token, before: tuple[Setting, ...], report: Report) -> None:
    """A word where an option should stand; sbatch stops there."""
    text = stray.text
    hint = ""
    last = before[-1] if before else None
    if text.startswith(("\u2013", "\u2014", "\u2212")):
        hint = f"that is a typographic dash; write --{text[1:].lstrip('-')}"
    elif "\u00a0" in text:
        hint = "there is a no-break space in it; type a plain one"
    elif last is not None and last.place.line == stray.place.line:
        hint = _after_value(last, text)
    elif "=" in text and text[:1].isalpha():
        hint = f"options begin with --: --{text}"
    report.error(
        stray.place, "stray-word", f"{shorten(text)!r} is no option; sbatch stops reading here", hint
    )


def _after_value(last: Setting, text: str) -> str:
    if last.value is None:
        return (
            f"--{last.option.name} takes no value here"
            if last.option.argument == "none"
            else f"write --{last.option.name}={text}"
        )
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
