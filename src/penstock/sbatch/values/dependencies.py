"""--dependency: conditions on other jobs, joined by commas (all of them) or question marks (any of them)."""

from __future__ import annotations

from typing import Final

from penstock.model.jobspec import Dependencies, Dependency
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.values.problem import Problem, split_outside_brackets

KINDS: Final = ("after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer", "expand")
_JOB = Pattern(r"(0*[1-9][0-9]*(?:_(?:[0-9]+|\*|\[[0-9,:\-]+\]))?)(?:\+([0-9]+))?")
_FORMS: Final = "as in afterok:123, afterany:123:456, after:123+5 or singleton"


def dependency(text: str) -> Dependencies:
    if not text:
        return Dependencies()
    conditions = tuple(_condition(part, text) for part in split_outside_brackets(text, ",?"))
    return Dependencies("any" if "?" in text else "all", conditions)


def _condition(part: str, text: str) -> Dependency:
    if part.lower() == "singleton":
        return Dependency("singleton")
    kind, colon, rest = part.partition(":")
    if not colon and _JOB.fullmatch(part):
        return Dependency("afterany", (part,))
    if kind.lower() not in KINDS or not rest:
        raise Problem(f"{part!r} is not a valid dependency", _hint(kind, text))
    jobs, delay = [], 0
    for job in rest.split(":"):
        match = _JOB.fullmatch(job)
        if match is None:
            raise Problem(f"{job!r} is not a valid job id", _hint(kind, job))
        jobs.append(match.group(1))
        delay = int((match.group(2) or "0")[:9]) or delay
    return Dependency(kind.lower(), tuple(jobs), delay)


def _hint(kind: str, text: str) -> str:
    if "$" in text or "<" in text:
        return "sbatch expands no variables in directives; give --dependency on the command line"
    if kind.lower() in KINDS:
        return _FORMS
    return f"known: {', '.join((*KINDS, 'singleton'))}"
