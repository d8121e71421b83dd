"""Values that are one of a few words, or have a small grammar."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from penstock.sbatch.patterns import Pattern
from penstock.sbatch.values.problem import Problem, leading_number, whole_number

RLIMITS = ("ALL", "NONE", "AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK")
"""Limits of getrlimit(2) that Slurm passes on."""
_FREQUENCY = r"(?:low|medium|high|highm1|[0-9]+)"
_GOVERNORS = r"(?:conservative|ondemand|performance|powersave|schedutil|userspace)"
_CPU_FREQ = Pattern(rf"{_FREQUENCY}(?:-{_FREQUENCY})?(?::{_GOVERNORS})?|{_GOVERNORS}", re.IGNORECASE)
_CUT_NUMBER = Pattern(r"[ \t]*\+?[0-9]+[^0-9]")
_GOVERNOR = Pattern(r"co|onde|perf|pow|sched|user", re.IGNORECASE)
_NAMED: Final = {"lo": 1, "med": 2, "him1": 4, "highm1": 4, "hi": 3}
"""Beginnings of frequency names with sbatch's rank; all are above any number."""
_ACCTG = Pattern(
    r"[0-9]+|(?:task|energy|network|filesystem)=[0-9]+(?:,(?:task|energy|network|filesystem)=[0-9]+)*", re.I
)
_SAMPLED = Pattern(r"(?:.*(?:task|energy|network|filesystem)=)?[ \t]*\+?[0-9]", re.IGNORECASE)
_USER_ENV = Pattern(r"[0-9]*[sSlL]?")
_SWITCHES = Pattern(r"[ \t]*\+?0*[1-9][0-9]*(?:@(.*))?")
_FEATURES = Pattern(r"[^\s\[\]()&|*]+")


def one_of(*words: str) -> Callable[[str], str]:
    """A grammar of fixed words, ignoring case."""

    def parse(text: str) -> str:
        if text.lower() not in words:
            raise Problem(f"{text!r} is not one of {', '.join(words)}")
        return text.lower()

    return parse


def matching(pattern: Pattern, what: str, hint: str, lenient: str = "") -> Callable[[str], str]:
    """A grammar of one regular expression; what only `lenient` matches is odd, but accepted by sbatch."""
    loose = Pattern(lenient or "(?!)", re.IGNORECASE)

    def parse(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise Problem(f"{text!r} is no {what}", hint, odd=loose.match(text) is not None)
        return text

    return parse


yes_no = one_of("yes", "no")
gres_flags = one_of("enforce-binding", "disable-binding")
get_user_env = matching(
    _USER_ENV,
    "timeout and mode",
    "as in 10, 10L or S",
    r"[sl]|[ \t]*[+-]?[0-9]+(?:[sl]|$)",
)
switches = matching(_SWITCHES, "number of switches", "count, or count@time")


def acctg_freq(text: str) -> str:
    """--acctg-freq: seconds, or kind=seconds,…; sbatch requires a number >= 0 in each entry."""
    if _ACCTG.fullmatch(text) is None:
        taken = all(_SAMPLED.match(entry) for entry in text.split(",") if entry)
        raise Problem(
            f"{text!r} is not a valid sampling interval", "as in 30 or task=30,energy=60", odd=taken
        )
    return text


def hint(text: str) -> tuple[str, ...]:
    """--hint: a list of words."""
    word = one_of("compute_bound", "memory_bound", "multithread", "nomultithread")
    return tuple(map(word, text.split(",")))


def cpu_freq(text: str) -> str:
    """--cpu-freq: min[-max[:governor]], or only a governor; names may be abbreviated."""
    most, governor = _frequencies(text)
    if governor is not None and (most is None or _GOVERNOR.match(governor) is None):
        message = f"{text!r}: a governor must be alone, or after two frequencies"
        raise Problem(message, "as in low-high:performance")
    return _written_out(text)


def cpu_freq_governed(text: str) -> str:
    """--cpu-freq of 24.11 and later: one frequency needs the governor userspace, two need another one."""
    most, governor = _frequencies(text)
    fixed = governor is not None and governor.lower().startswith("user")
    if any(_CUT_NUMBER.match(part) for part in text.partition(":")[0].split("-")):
        raise Problem(
            f"{text!r} is not a valid CPU frequency", "low, medium, high, highm1 or kHz, or a governor"
        )
    if most is None and governor is not None and not fixed:
        raise Problem(f"{text!r}: a single frequency is for userspace only", "as in high:userspace")
    if most is not None and (fixed or governor is None or _GOVERNOR.match(governor) is None):
        message = f"{text!r}: two frequencies need a governor other than userspace"
        raise Problem(message, "as in low-high:performance")
    return _written_out(text)


def _frequencies(text: str) -> tuple[str | None, str | None]:
    """The higher frequency and the governor, if given."""
    wanted, colon, governor = text.partition(":")
    least, dash, most = wanted.partition("-")
    alone = not _rank(least) and _GOVERNOR.match(least) is not None
    if not (_rank(least) or alone) or (dash and not _rank(most)) or (alone and colon):
        raise Problem(
            f"{text!r} is not a valid CPU frequency", "low, medium, high, highm1 or kHz, or a governor"
        )
    if (alone and dash) or (dash and _rank(most) < _rank(least)):
        raise Problem(f"{text!r}: {most} is less than {least} to sbatch", "write the smaller one first")
    return most if dash else None, governor if colon else None


def _written_out(text: str) -> str:
    if _CPU_FREQ.fullmatch(text) is None:
        raise Problem(f"{text!r} is not a valid CPU frequency; sbatch reads its beginning", odd=True)
    return text


def _rank(frequency: str) -> int:
    lowered = frequency.lower()
    named = next((rank for name, rank in _NAMED.items() if lowered.startswith(name)), 0)
    return 2**31 + named if named else max(leading_number(frequency), 0)


def open_mode(text: str) -> str:
    """--open-mode: append or truncate; sbatch checks the first letter only."""
    words = {"a": "append", "t": "truncate"}
    word = words.get(text[:1].lower())
    if word is None:
        raise Problem(f"{text!r} is neither append nor truncate")
    return word


def no_kill(text: str) -> str:
    """--no-kill[=off]; an empty value is like none."""
    return one_of("off", "no", "set")(text) if text else ""


def exclusive(text: str) -> str:
    """--exclusive[=user|mcs]; sbatch also accepts exclusive and oversubscribe."""
    return one_of("user", "mcs", "exclusive", "oversubscribe")(text) if text else "exclusive"


def exclusive_topo(text: str) -> str:
    """--exclusive[=user|mcs|topo]."""
    return one_of("user", "mcs", "topo", "exclusive", "oversubscribe")(text) if text else "exclusive"


def profile(text: str) -> str:
    """--profile: sbatch only checks that a known word occurs in it."""
    known = ("all", "none", "energy", "task", "lustre", "network")
    if not any(word in text.lower() for word in known):
        raise Problem(
            f"{text!r} is not a valid profile", "all, none, or a list of energy, task, lustre, network"
        )
    return text


def rlimits(text: str) -> str:
    """--propagate: names of resource limits."""
    if text in ("ALL", "NONE", ""):
        return text
    for word in re.split(r"[, \t\n]", text):
        name = word.removeprefix("RLIMIT_")
        if word and (name in ("ALL", "NONE") or name not in RLIMITS):
            raise Problem(f"{word!r} is not a valid resource limit", f"known: {', '.join(RLIMITS)}")
    return text


def features(text: str) -> str:
    """--constraint: names joined by & | , with counts and brackets; only balance is checked."""
    for opening, closing in ("[]", "()"):
        if text.count(opening) != text.count(closing):
            hint = "as in a100|h100 or [rack1|rack2]"
            raise Problem(f"{text!r}: {opening} and {closing} do not match", hint)
    if text.count("[") > 1:
        raise Problem(f"{text!r}: only one pair of square brackets is allowed")
    if text and not _FEATURES.search(text):
        raise Problem(f"{text!r} has no feature")
    return text


def feature_names(text: str) -> tuple[str, ...]:
    """The names in a constraint, without counts and operators."""
    bare = re.sub(r"\*[0-9]+", "", text)
    return tuple(name for name in re.split(r"[\[\]()&|,]", bare) if name.strip())


def power(text: str) -> str:
    """--power: unknown words are ignored."""
    if text.lower() != "level":
        raise Problem(f"{text!r} is not a valid power option; Slurm ignores it", odd=True)
    return text


def number_or_text(text: str) -> str:
    """A user or group: a name or a number, looked up on the submit host."""
    if not text or (whole_number(text) or 0) < 0:
        raise Problem(f"{text!r} is neither a name nor a number")
    return text
