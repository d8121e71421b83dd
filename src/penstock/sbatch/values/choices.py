"""Values that are one of a few words, and small grammars of words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from penstock.sbatch.patterns import Pattern
from penstock.sbatch.values.problem import Problem, whole_number

RLIMITS: Final = [
    "ALL",
    "NONE",
    "AS",
    "CORE",
    "CPU",
    "DATA",
    "FSIZE",
    "MEMLOCK",
    "NOFILE",
    "NPROC",
    "RSS",
    "STACK",
]  # what getrlimit(2) of Linux has and Slurm passes on
_DISTRIBUTION = Pattern(
    r"(?:\*|block|cyclic|plane=[0-9]+|arbitrary)(?::(?:\*|block|cyclic|fcyclic)){0,2}(?:,(?:no)?pack)?",
    re.IGNORECASE,
)
_GPU_BIND = Pattern(
    r"(?:verbose,)?(?:closest|none|(?:map_gpu|mask_gpu):[0-9a-fx,*]+|single:[0-9]+|per_task:[0-9]+)",
    re.IGNORECASE,
)
_FREQUENCY = r"(?:low|medium|high|highm1|[0-9]+)"
_GPU_FREQ = Pattern(rf"(?:(?:memory=)?{_FREQUENCY}|verbose)(?:,(?:(?:memory=)?{_FREQUENCY}|verbose))*")
_GOVERNORS = r"(?:conservative|ondemand|performance|powersave|schedutil|userspace)"
_CPU_FREQ = Pattern(
    rf"{_FREQUENCY}(?:-{_FREQUENCY}(?::{_GOVERNORS})?)?|{_GOVERNORS}|{_FREQUENCY}:{_GOVERNORS}", re.IGNORECASE
)
_MEM_BIND = Pattern(
    r"(?:(?:q|quiet|v|verbose),)*(?:none|no|rank|local|sort|nosort|prefer|(?:map_mem|mask_mem):[0-9a-fx,*]+)"
    r"(?:,(?:sort|nosort|prefer|quiet|verbose))*|q|quiet|v|verbose|help",
    re.IGNORECASE,
)
_ACCTG = Pattern(
    r"[0-9]+|(?:task|energy|network|filesystem)=[0-9]+(?:,(?:task|energy|network|filesystem)=[0-9]+)*", re.I
)
_USER_ENV = Pattern(r"[0-9]*[sSlL]?")
_SWITCHES = Pattern(r"\+?[0-9]+(?:@(.*))?")
_FEATURES = Pattern(r"[^\s\[\]()&|*]+")


def one_of(*words: str) -> Callable[[str], str]:
    """A grammar of fixed words, case ignored."""

    def parse(text: str) -> str:
        if text.lower() not in words:
            raise Problem(f"{text!r} is none of {', '.join(words)}")
        return text.lower()

    return parse


def matching(pattern: Pattern, what: str, hint: str, lenient: str = "") -> Callable[[str], str]:
    """A grammar of one regular expression; what only `lenient` takes, sbatch takes too, whatever it means."""
    loose = Pattern(lenient or "(?!)", re.IGNORECASE)

    def parse(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise Problem(f"{text!r} is no {what}", hint, odd=loose.match(text) is not None)
        return text

    return parse


yes_no = one_of("yes", "no")
hint = one_of("compute_bound", "memory_bound", "multithread", "nomultithread")
gres_flags = one_of("enforce-binding", "disable-binding")
no_kill = one_of("off", "set")
distribution = matching(
    _DISTRIBUTION, "distribution", "as in block, cyclic, plane=4 or block:cyclic", r"plane.?=[0-9]+$|:[^:]+$"
)
gpu_bind = matching(
    _GPU_BIND, "GPU binding", "as in closest, single:1, map_gpu:0,1 or none", r"(?:verbose,)?(?:cl|single)"
)
gpu_freq = matching(_GPU_FREQ, "GPU frequency", "low, medium, high, highm1 or MHz")
cpu_freq = matching(
    _CPU_FREQ,
    "CPU frequency",
    "low, medium, high, highm1 or kHz, or a governor",
    r"lo|me|hi|[0-9]+(?:-|:|$)|co|on|pe|po|sc|us",
)
mem_bind = matching(_MEM_BIND, "memory binding", "as in local, rank, none or map_mem:0,1")
acctg_freq = matching(
    _ACCTG,
    "sampling interval",
    "as in 30 or task=30,energy=60",
    r"[0-9]|.*(?:task|energy|network|filesystem)=[0-9]",
)
get_user_env = matching(_USER_ENV, "timeout and mode", "as in 10, 10L or S", r"[0-9]*[sl]")


def open_mode(text: str) -> str:
    """--open-mode: append or truncate; sbatch looks at the first letter alone."""
    words = {"a": "append", "t": "truncate"}
    word = words.get(text[:1].lower())
    if word is None:
        raise Problem(f"{text!r} is neither append nor truncate")
    return word


def exclusive(text: str) -> str:
    """--exclusive[=user|mcs]."""
    return one_of("user", "mcs")(text) if text else "exclusive"


def exclusive_topo(text: str) -> str:
    """--exclusive[=user|mcs|topo]."""
    return one_of("user", "mcs", "topo")(text) if text else "exclusive"


def profile(text: str) -> str:
    """--profile: sbatch only looks whether a known word is somewhere in it."""
    known = ("all", "none", "energy", "task", "lustre", "filesystem", "network")
    if not any(word in text.lower() for word in known):
        raise Problem(f"{text!r} is no profile", "all, none, or a list of energy, task, filesystem, network")
    return text


def rlimits(text: str) -> str:
    """--propagate: names of resource limits."""
    if text in ("ALL", "NONE", ""):
        return text
    for word in text.split(","):
        if word and (word in ("ALL", "NONE") or word not in RLIMITS):
            raise Problem(f"{word!r} is no resource limit", f"known: {', '.join(RLIMITS)}")
    return text


def switches(text: str) -> str:
    """--switches=count[@max-wait]."""
    if _SWITCHES.fullmatch(text) is None:
        raise Problem(f"{text!r} is no number of switches", "count, or count@time")
    return text


def features(text: str) -> str:
    """--constraint: names joined by & | , with counts, brackets and parentheses; checked for balance only."""
    for opening, closing in ("[]", "()"):
        if text.count(opening) != text.count(closing):
            raise Problem(
                f"{text!r}: {opening} and {closing} do not match", "as in a100|h100 or [rack1|rack2]"
            )
    if text.count("[") > 1:
        raise Problem(f"{text!r}: only one pair of square brackets is allowed")
    if text and not _FEATURES.search(text):
        raise Problem(f"{text!r} names no feature")
    return text


def feature_names(text: str) -> tuple[str, ...]:
    """The names in a constraint, without counts and operators."""
    bare = re.sub(r"\*[0-9]+", "", text)
    return tuple(name for name in re.split(r"[\[\]()&|,]", bare) if name.strip())


def power(text: str) -> str:
    """--power: an unknown word is only ignored."""
    if text.lower() != "level":
        raise Problem(f"{text!r} is no power option; Slurm ignores it", odd=True)
    return text


def number_or_text(text: str) -> str:
    """A user or group: a name or a number, looked up on the submit host."""
    if not text or (whole_number(text) or 0) < 0:
        raise Problem(f"{text!r} is neither a name nor a number")
    return text
