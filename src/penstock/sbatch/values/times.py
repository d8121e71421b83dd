"""Time limits and points in time.

A limit is in whole minutes, rounded up; 0 and UNLIMITED both mean "no limit" in Slurm. Sums overflow at 32
bits as in Slurm. A point in time (--begin, --deadline) is checked and kept as written, because it depends on
the time and time zone of submission.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.model.jobspec import UNLIMITED
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.values.problem import Problem, as_int32

_LIMIT = Pattern(r"(?:([0-9]+)-)?([0-9]*)(?::([0-9]+))?(?::([0-9]+))?")
_NEGATIVE_DAYS = Pattern(r"-[0-9]+")
_UNIT_HINTS: Final = {"s": "seconds: 0:30", "m": "minutes: 30", "h": "hours: 2:00:00", "d": "days: 1-0"}
_FORMS: Final = "minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes[:seconds]"

_DAY = r"(?:0[1-9]|[12][0-9]|3[01]|[1-9](?![0-9]))"
_DATE = (
    rf"(?=.{{4}}-.{{2}}-)[0-9]{{4}}-(?:0[1-9]|1[0-2])-{_DAY}"
    rf"|(?!.{{4}}-.{{2}}-)(?:0[1-9]|1[0-2]|[1-9](?![0-9]))[/.]?{_DAY}(?:[/.]?[0-9]{{2}}|[/.]?(?![0-9]))"
)
_MINUTES = r":[0-5][0-9](?::[0-5][0-9]|(?!:))"
_HALF_DAY = r"[ \t\n\v\f\r]*(?:am|pm)"
_CLOCK = rf"(?:0?[0-9]|1[0-2]){_MINUTES}{_HALF_DAY}|(?:[01]?[0-9]|2[0-3]){_MINUTES}(?!{_HALF_DAY})"
_DELTA = r"[+-][ \t\n\v\f\r]*[0-9][ \t\n\v\f\r0-9]*(?:$|(?:second|minute|hour|day|week)s?)"
_NOW = rf"now[ \t]*(?:$|{_DELTA})"
_WORDS = r"today|tomorrow|teatime|midnight|noon|fika"
_SINCE_1970 = Pattern(
    r"uts[ \t\n\v\f\r]*\+?0*([1-9][0-9]{6,17})", re.IGNORECASE
)  # sbatch requires at least 1000000
_BETWEEN: Final = " \tT-"
"""Separators of the parts of a time, any number of them; so no word begins with T."""


def _point(words: str) -> Pattern:
    """Matches parts without backtracking, so that the time is linear in their number."""
    between = f"(?-i:[{_BETWEEN}])"
    return Pattern(
        rf"(?:{_NOW})?(?>{between}|(?!{between})(?:{words}|{_CLOCK}|{_DATE}))*+(?:now[ \t]*)?",
        re.IGNORECASE | re.ASCII,
    )


_POINT = _point(_WORDS)
_POINT_ELEVENSES = _point(f"{_WORDS}|elevenses")


def limit(text: str) -> int:
    """--time: minutes, or UNLIMITED."""
    if text.upper() in ("UNLIMITED", "INFINITE") or text == "-1":
        return UNLIMITED
    if _NEGATIVE_DAYS.fullmatch(text):
        return _minutes(int(text[:9]) * 86400)
    match = _LIMIT.fullmatch(text)
    parts = match.groups() if match else (None, None, None, None)
    if not parts[1] and (parts[0] is None or parts[2] is not None):
        raise Problem(f"{text!r} is not a valid time limit", _limit_hint(text))
    if parts[0] is None and parts[3] is None:
        parts = (None, None, *parts[1:3])  # minutes[:seconds]
    days, hours, minutes, seconds = (int((digits or "0")[:18]) for digits in parts)
    return _minutes(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _minutes(seconds: int) -> int:
    wrapped = as_int32(seconds)
    rounded = int((wrapped + 59) / 60)
    return UNLIMITED if rounded == 0 else rounded % 2**32


def _limit_hint(text: str) -> str:
    unit = text[-1:].lower()
    if text[:-1].isdigit() and unit in _UNIT_HINTS:
        return f"no unit letters; {_UNIT_HINTS[unit]}"
    if text.count(":") == 3:
        return "days are separated by a dash: days-hours:minutes:seconds"
    return f"forms: {_FORMS}, UNLIMITED"


def point(text: str) -> str:
    """--begin, --deadline: checked, kept as written."""
    return _checked(text, _POINT)


def point_elevenses(text: str) -> str:
    """--begin, --deadline of 24.05 and later, which also accept elevenses."""
    return _checked(text, _POINT_ELEVENSES)


def _checked(text: str, known: Pattern) -> str:
    somewhen = text.strip(_BETWEEN) and known.fullmatch(text) is not None
    if not somewhen and _SINCE_1970.fullmatch(text) is None:
        raise Problem(
            f"{text!r} is not a valid time", "forms: 16:00, now+1hour, tomorrow, 2030-01-20T12:34:00"
        )
    return text
