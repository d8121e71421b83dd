"""Mail types and signals."""

from __future__ import annotations

from typing import Final

from penstock.model.jobspec import SignalSpec
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
    """--signal: [{R|B}:]signal[@seconds before the end]."""
    flags, colon, rest = text.partition(":")
    if not colon:
        flags, rest = "", text
    if colon and flags.upper() not in ("", "B", "R", "BR", "RB"):
        raise Problem(f"{flags!r} before the colon is neither B nor R", "as in B:USR1@60")
    name, at, seconds = rest.partition("@")
    before = _seconds(seconds or "0", at) if at else 60
    return SignalSpec(_number(name), before, "B" in flags.upper(), "R" in flags.upper())


def _seconds(text: str, at: str) -> int:
    if not text.isdecimal() or not text.isascii() or int(text[:9]) > 65535:
        raise Problem(f"{text!r} after {at} is no number of seconds up to 65535")
    return int(text[:9])


def _number(name: str) -> int:
    number = whole_number(name)
    if number is not None and number != 0:
        return number
    known = SIGNALS.get(name.upper().removeprefix("SIG"))
    if known is None:
        raise Problem(f"{name!r} is no signal sbatch knows", f"a number, or one of {', '.join(SIGNALS)}")
    return known
