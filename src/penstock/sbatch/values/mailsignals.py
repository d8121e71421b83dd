"""Mail types and signals."""

from __future__ import annotations

import re
from typing import Final

from penstock.model.jobspec import SignalSpec
from penstock.sbatch import lexer
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.values.problem import Problem, whole_number

MAIL_TYPES: Final = (
    "ARRAY_TASKS",
    "INVALID_DEPEND",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "STAGE_OUT",
    "TIME_LIMIT",
    "TIME_LIMIT_90",
    "TIME_LIMIT_80",
    "TIME_LIMIT_50",
)
ALL_MAIL: Final = ("INVALID_DEPEND", "BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT")

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
"""The names sbatch knows; other signals only by number."""


def mail_types(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The types asked for, and the words that are none; sbatch drops those as long as one word is right."""
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
        raise Problem(
            f"{text!r} is no mail type", f"known: NONE, ALL, {', '.join(MAIL_TYPES[1:])}, ARRAY_TASKS"
        )
    return tuple(name for name in MAIL_TYPES if name in known), tuple(unknown)


def signal(text: str) -> SignalSpec:
    """--signal: [{R|B}:]signal[@seconds before the end]; sbatch does without the colon, too."""
    start = _FLAGS.match(text)
    assert start is not None  # noqa: S101 - it matches nothing, too
    flags = start.group(1).upper()
    name, at, seconds = text[start.end() :].partition("@")
    before = _seconds(seconds, at) if at else 60
    return SignalSpec(_number(name), before, "B" in flags, "R" in flags)


def _seconds(text: str, at: str) -> int:
    number = whole_number(text or "0")
    if number is None or not 0 <= number <= 65535:
        raise Problem(f"{text!r} after {at} is no number of seconds up to 65535")
    return number


def _number(name: str) -> int:
    """What sbatch keeps of a number are 16 bits, and none is no signal."""
    bare = name.strip(lexer.BLANK)
    number = whole_number(bare)
    kept = SIGNALS.get(bare.upper().removeprefix("SIG"), 0) if number is None else number & 0xFFFF
    if not kept:
        hint = f"a number, or one of {', '.join(SIGNALS)}"
        raise Problem(f"{name!r} is no signal sbatch knows", hint)
    return kept
