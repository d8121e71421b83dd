"""What a check is: a name, a question in words, and a function that tells what is wrong."""

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
    """Something that is not right, and what to do about it.

    What holds for several nodes is said once: in message and remedy `{nodes}` stands for all of them, as a
    host list, and `{node}` for the only one, or for the word NODE.
    """

    message: str
    remedy: str
    warning: bool = False
    fix: Fix | None = None
    nodes: tuple[str, ...] = ()
    cause: errors.PenstockError | None = None
    """The error that other checks meet, too."""


class Skip(Exception):
    """The check has nothing to look at on this site; says why."""


class NotChecked(Exception):
    """Nothing can be said before what another check has found is put right; carries its name."""


Find = Callable[[Live], Iterator[Problem]]


@dataclasses.dataclass(frozen=True)
class Check:
    """One question about the site."""

    name: str
    title: str
    find: Find


class Result(msgspec.Struct, frozen=True):
    """How a check came out."""

    name: str
    title: str
    status: Status
    message: str = ""
    remedy: str = ""
    fixed: bool = False
    see: str = ""
    """The check that found why this one could not be made."""


class Registry(list[Check]):
    """Checks in the order in which they are written down."""

    def add(self, name: str, title: str) -> Callable[[Find], Find]:
        """Write down a check."""

        def register(find: Find) -> Find:
            self.append(Check(name, title, find))
            return find

        return register


def run(checks: Iterable[Check], live: Live, *, fix: bool = False) -> Iterator[Result]:
    """Each check's result; with `fix`, what can be put right without asking is."""
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
        yield _not_checked(check, first) if first != check.name else _unknown(check, error)
        return
    if not problems:
        yield Result(check.name, check.title, "ok")
    for problem in _folded(problems):
        if problem.cause is not None:
            causes.setdefault(_key(problem.cause), check.name)
        yield _result(check, problem, fix=fix)


def _key(error: Exception) -> object:
    """Equal for errors of one cause. Each of Slurm's commands has words of its own for a silent daemon."""
    if isinstance(error, errors.SlurmUnavailable):
        return errors.SlurmUnavailable
    return type(error), str(error)


def _not_checked(check: Check, see: str) -> Result:
    return Result(check.name, check.title, "unknown", f"not checked: see {see}", see=see)


def _unknown(check: Check, error: Exception) -> Result:
    message = error.message if isinstance(error, errors.PenstockError) else str(error)
    return Result(check.name, check.title, "unknown", message, remedy(error))


def remedy(error: Exception) -> str:
    """What to do about an error: who may not see enough of a site is to call as root; else what it says."""
    both = (error, error.__cause__)
    if os.geteuid() != 0 and any(isinstance(one, PermissionError | errors.KubeNotAllowed) for one in both):
        return "run it as root"
    return error.hint if isinstance(error, errors.PenstockError) else ""


def _folded(problems: Iterable[Problem]) -> Iterator[Problem]:
    """What is said of several nodes in the same words, once."""
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
    """The status that decides the exit code."""
    return max((result.status for result in results), key=ORDER.index, default="ok")
