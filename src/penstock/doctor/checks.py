"""A check has a name, a title and a function that yields problems."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from penstock import errors
from penstock.doctor.live import Live
from penstock.slurm import hostlists

Status = Literal["ok", "warning", "failed", "unknown", "skipped"]
ORDER: tuple[Status, ...] = ("skipped", "ok", "warning", "unknown", "failed")
Fix = Callable[[], None]


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is wrong and what to do about it.

    Equal problems of several nodes become one result: in message and remedy, `{nodes}` stands for the host
    list of all nodes, and `{node}` for the only node, or for the word NODE.
    """

    message: str
    remedy: str
    warning: bool = False
    fix: Fix | None = None
    nodes: tuple[str, ...] = ()
    cause: errors.PenstockError | None = None
    """The error behind it, which other checks run into as well."""


class Skip(Exception):
    """The check does not apply to this site; the message says why."""


class NotChecked(Exception):
    """The check depends on another one that failed; carries the name of that check."""


Find = Callable[[Live], Iterator[Problem]]


@dataclasses.dataclass(frozen=True)
class Check:
    name: str
    title: str
    find: Find


class Result(msgspec.Struct, frozen=True):
    name: str
    title: str
    status: Status
    message: str = ""
    remedy: str = ""
    fixed: bool = False
    see: str = ""
    """The check that found why this one could not run."""


class Registry(list[Check]):
    """Checks in the order of their definition."""

    def add(self, name: str, title: str) -> Callable[[Find], Find]:
        def register(find: Find) -> Find:
            self.append(Check(name, title, find))
            return find

        return register


def run(checks: Iterable[Check], live: Live, *, fix: bool = False) -> Iterator[Result]:
    """Results of the checks; with `fix`, problems that have a fix are fixed."""
    causes: dict[object, str] = {}
    for check in checks:
        yield from _results(check, live, causes, fix=fix)


def _results(check: Check, live: Live, causes: dict[object, str], *, fix: bool) -> Iterator[Result]:
    try:
        problems = list(check.find(live))
    except Skip as why:
        yield Result(check.name, check.title, "skipped", str(why))
        return
    except NotChecked as why:
        yield _not_checked(check, str(why))
        return
    except (errors.PenstockError, OSError) as error:
        first = causes.setdefault(_key(error), check.name)
        if first != check.name:
            yield _not_checked(check, first)
        else:
            message = error.message if isinstance(error, errors.PenstockError) else str(error)
            yield Result(check.name, check.title, "unknown", message, remedy(error))
        return
    if not problems:
        yield Result(check.name, check.title, "ok")
    for problem in _folded(problems):
        if problem.cause is not None:
            causes.setdefault(_key(problem.cause), check.name)
        yield _result(check, problem, fix=fix)


def _key(error: Exception) -> object:
    """Equal for errors with one cause. Slurm's commands word "slurmctld does not answer" differently."""
    if isinstance(error, errors.SlurmUnavailable):
        return errors.SlurmUnavailable
    return type(error), str(error)


def _not_checked(check: Check, see: str) -> Result:
    return Result(check.name, check.title, "unknown", f"not checked: see {see}", see=see)


def remedy(error: Exception) -> str:
    """The hint of the error, or "run it as root" if permissions are missing."""
    both = (error, error.__cause__)
    if os.geteuid() != 0 and any(isinstance(one, PermissionError | errors.KubeNotAllowed) for one in both):
        return "run it as root"
    return error.hint if isinstance(error, errors.PenstockError) else ""


def _folded(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Merge equal problems of several nodes into one."""
    alike: dict[object, list[Problem]] = {}
    for number, problem in enumerate(problems):
        same = (problem.message, problem.remedy, problem.warning) if problem.nodes else number
        alike.setdefault(same, []).append(problem)
    for first, *more in alike.values():
        nodes = [node for problem in (first, *more) for node in problem.nodes]
        yield dataclasses.replace(
            first, message=_about(first.message, nodes), remedy=_about(first.remedy, nodes)
        )


def _about(text: str, nodes: Sequence[str]) -> str:
    if not nodes:
        return text
    name = nodes[0] if len(set(nodes)) == 1 else "NODE"
    return text.replace("{nodes}", hostlists.fold(nodes)).replace("{node}", name)


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
    """The most severe status, which decides the exit code."""
    return max((result.status for result in results), key=ORDER.index, default="ok")
