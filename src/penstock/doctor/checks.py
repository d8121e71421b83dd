"""What a check is: a name, a question in words, and a function that tells what is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from penstock import errors
from penstock.doctor import rights
from penstock.doctor.live import Live

Status = Literal["ok", "warning", "failed", "unknown", "skipped"]
ORDER: tuple[Status, ...] = ("skipped", "ok", "warning", "unknown", "failed")
Fix = Callable[[], None]


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something that is not right, and what to do about it."""

    message: str
    remedy: str
    warning: bool = False
    fix: Fix | None = None


class Skip(Exception):
    """The check has nothing to look at on this site; says why."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One question about the site."""

    name: str
    title: str
    find: Callable[[Live], Iterator[Problem]]


class Result(msgspec.Struct, frozen=True):
    """How a check came out."""

    name: str
    title: str
    status: Status
    message: str = ""
    remedy: str = ""
    fixed: bool = False


class Registry:
    """Checks in the order in which they are written down."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def add(
        self, name: str, title: str
    ) -> Callable[[Callable[[Live], Iterator[Problem]]], Callable[[Live], Iterator[Problem]]]:
        """Write down a check."""

        def register(find: Callable[[Live], Iterator[Problem]]) -> Callable[[Live], Iterator[Problem]]:
            self.checks.append(Check(name, title, find))
            return find

        return register


def run(checks: Iterable[Check], live: Live, *, fix: bool = False) -> Iterator[Result]:
    """Each check's result; with `fix`, what can be put right without asking is."""
    for check in checks:
        yield from _results(check, live, fix=fix)


def _results(check: Check, live: Live, *, fix: bool) -> Iterator[Result]:
    try:
        problems = list(check.find(live))
    except Skip as why:
        yield Result(check.name, check.title, "skipped", str(why))
        return
    except errors.PenstockError as error:
        yield Result(check.name, check.title, "unknown", error.message, rights.remedy(error))
        return
    except OSError as error:
        yield Result(check.name, check.title, "unknown", str(error), rights.remedy(error))
        return
    if not problems:
        yield Result(check.name, check.title, "ok")
    for problem in problems:
        yield _result(check, problem, fix=fix)


def _result(check: Check, problem: Problem, *, fix: bool) -> Result:
    if fix and problem.fix is not None:
        try:
            problem.fix()
        except (OSError, errors.PenstockError) as error:
            return Result(check.name, check.title, "failed", f"{problem.message}; not fixed: {error}")
        return Result(check.name, check.title, "ok", f"was: {problem.message}", fixed=True)
    status: Status = "warning" if problem.warning else "failed"
    return Result(check.name, check.title, status, problem.message, problem.remedy)


def worst(results: Iterable[Result]) -> Status:
    """The status that decides the exit code."""
    return max((result.status for result in results), key=ORDER.index, default="ok")
