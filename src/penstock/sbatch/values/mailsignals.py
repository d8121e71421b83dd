"""Mail types and signals."""

from __future__ import annotations

import re
from typing import Final

from penstock.model.jobspec import SignalSpec
from penstock.sbatch import lexer
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.values.problem import Problem, whole_number

ALL_MAIL: Final = ("INVALID_DEPEND", "BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT")
TIME_LIMITS: Final = ("TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50")
MAIL_TYPES: Final = ("ARRAY_TASKS", *ALL_MAIL, *TIME_LIMITS)

_FLAGS = Pattern(r"(R?B?R?):?", re.IGNORECASE)

SIGNALS: Final = {
    "HUP": 1,
    "INT": 2,
    "QUIT": 3,
    "ABRT": 6,
    "KILL": 9,
    "USR1": 10,
    "USR2": 12,
    "ALRM": 14,
    "TERM": 15,
    "CONT": 18,
    "STOP": 19,
    "TSTP": 20,
    "TTIN": 21,
    "TTOU": 22,
    "URG": 23,
    "XCPU": 24,
}
"""Signal names in sbatch; others must be given by number."""


def mail_types(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The types, and unknown words, which sbatch ignores if at least one word is valid."""
    known: list[str] = []
    unknown: list[str] = []
    for word in text.split(","):
        name = word.upper()
        if name == "NONE":
            return ("NONE",), ()
        if name == "ALL":
            known.extend(ALL_MAIL)
        elif name in MAIL_TYPES:
            known.append(name)
        elif word:
            unknown.append(word)
    if not known:
        hint = f"known: NONE, ALL, {', '.join(MAIL_TYPES[1:])}, ARRAY_TASKS"
        raise Problem(f"{text!r} is not a valid mail type", hint)
    return tuple(name for name in MAIL_TYPES if name in known), tuple(unknown)


def signal(text: str) -> SignalSpec:
    """--signal: [{R|B}:]signal[@seconds before the end]; sbatch does not require the colon."""
    start = _FLAGS.match(text)
    assert start is not None  # noqa: S101 - it matches nothing, too
    flags = start.group(1).upper()
    name, at, seconds = text[start.end() :].partition("@")
    before = _seconds(seconds, at) if at else 60
    return SignalSpec(_number(name), before, "B" in flags, "R" in flags)


def _seconds(text: str, at: str) -> int:
    number = whole_number(text or "0")
    if number is None or not 0 <= number <= 65535:
        raise Problem(f"{text!r} after {at} is not a number of seconds up to 65535")
    return number


def _number(name: str) -> int:
    """sbatch keeps 16 bits of a number, and refuses 0."""
    bare = name.strip(lexer.BLANK)
    number = whole_number(bare)
    kept = SIGNALS.get(bare.upper().removeprefix("SIG"), 0) if number is None else number & 0xFFFF
    if not kept:
        hint = f"a number, or one of {', '.join(SIGNALS)}"
        raise Problem(f"{name!r} is not a signal that sbatch knows", hint)
    return kept
