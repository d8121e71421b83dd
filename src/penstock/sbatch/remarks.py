"""What to say about lines and words that sbatch refuses, or drops without a word."""

from __future__ import annotations

import re

from penstock.sbatch.diagnostics import Place, Report
from penstock.sbatch.getopt import Setting, Token
from penstock.sbatch.lexer import MOST_WORDS, Words
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.source import K8S_MAGIC, MAGIC, Line, Script

_K8S_WORD = Pattern(r"^[ \t#]*K8S[_ \t\-]", re.IGNORECASE)


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
    word, reader, meant = line.text.strip().partition(" -")[0], " to sbatch", MAGIC
    if _K8S_WORD.search(word):
        word, _, value = line.text.strip().partition("=")
        name = _K8S_WORD.sub("", word).strip().upper().replace("-", "_")
        reader, meant = "", f"{K8S_MAGIC}{name}={shorten(value.strip())}"
    hint = f"write {meant} at the line's start if it is meant"
    report.info(Place(line.number, 1), "almost-directive", f"{word!r} is a comment{reader}", hint)


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
    return f'quote values with blanks: --{last.option.name}="{last.value} {text}"'


def shorten(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
