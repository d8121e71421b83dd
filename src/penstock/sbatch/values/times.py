"""Time limits and points in time.

A limit is kept in whole minutes, seconds rounded up; 0 and UNLIMITED are both "no limit" to Slurm. Sums
are done in 32 bits as Slurm does them. A point in time (--begin, --deadline) is checked and kept as
written: it depends on when, and in which time zone, the job is submitted.
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
_SINCE_1970 = Pattern(r"uts[ \t\n\v\f\r]*\+?0*([1-9][0-9]{6,17})", re.IGNORECASE)  # a million is the least
_BETWEEN: Final = " \tT-"
"""What may stand between the parts of a time, any number of times; so a T never begins a word."""


def _point(words: str) -> Pattern:
    """Parts are read one after the other and never anew: a long list of them costs what it is long."""
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
    if match is None or not text:
        raise Problem(f"{text!r} is no time limit", _limit_hint(text))
    days, first, second, third = match.groups()
    if days is not None:
        if not first and second is not None:
            raise Problem(f"{text!r} is no time limit", _limit_hint(text))
        return _minutes(_seconds(_int(days), _int(first), _int(second), _int(third)))
    if not first:
        raise Problem(f"{text!r} is no time limit", _limit_hint(text))
    if third is not None:
        return _minutes(_seconds(0, _int(first), _int(second), _int(third)))
    return _minutes(_seconds(0, 0, _int(first), _int(second)))


def _int(digits: str | None) -> int:
    return int((digits or "0")[:18])


def _seconds(days: int, hours: int, minutes: int, seconds: int) -> int:
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


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
    """--begin, --deadline of 24.05 and later, which know one more word."""
    return _checked(text, _POINT_ELEVENSES)


def _checked(text: str, known: Pattern) -> str:
    somewhen = text.strip(_BETWEEN) and known.fullmatch(text) is not None
    if not somewhen and _SINCE_1970.fullmatch(text) is None:
        raise Problem(f"{text!r} is no time", "forms: 16:00, now+1hour, tomorrow, 2030-01-20T12:34:00")
    return text
