"""Settings to values: each option once, by precedence, with where it came from.

The order is the one sbatch applies: the script, then SBATCH_* variables, then the command line; the last
one wins, save for --mail-type, which adds up. A value that sbatch refuses is refused wherever it stands,
even when a later one would have replaced it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from penstock.model.jobspec import Provenance
from penstock.sbatch import options, rules
from penstock.sbatch.diagnostics import Place, Report
from penstock.sbatch.getopt import Setting
from penstock.sbatch.values.grammars import NEED_TYPES, grammar
from penstock.sbatch.values.problem import Problem

LONGEST_VALUE: Final = 128 * 1024
"""Longer than any text slurmctld accepts in a job."""

LEAST: Final = {"ntasks": 0, "cpus-per-task": 1}
"""What sbatch looks at once more after it has read all options."""


class Given(msgspec.Struct, frozen=True):
    """The value in force of one option."""

    value: Any
    text: str
    place: Place
    provenance: Provenance
    option: options.Option
    order: int = 0


class Values:
    """The options that were given, by name."""

    def __init__(self, given: Mapping[str, Given], release: str = options.DEFAULT_RELEASE) -> None:
        self._given = dict(given)
        self.release = release

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def get(self, name: str, default: Any = None) -> Any:
        found = self._given.get(name)
        return default if found is None else found.value

    def given(self, name: str) -> Given | None:
        return self._given.get(name)

    def place(self, name: str) -> Place:
        found = self._given.get(name)
        return found.place if found else Place()

    def drop(self, *names: str) -> None:
        for name in names:
            self._given.pop(name, None)

    def names(self) -> set[str]:
        return set(self._given)

    def items(self) -> Iterable[tuple[str, Given]]:
        return self._given.items()

    def chosen(self, name: str) -> bool:
        """Whether it was written in the script or on the command line, not just in the environment."""
        found = self._given.get(name)
        return found is not None and found.provenance.origin != "environment"


def resolve(
    settings: Iterable[Setting],
    report: Report,
    gres_types: tuple[str, ...] | None,
    release: str = options.DEFAULT_RELEASE,
) -> Values:
    """Parse every value, keep the last one of each option."""
    given: dict[str, Given] = {}
    for order, setting in enumerate(settings):
        value = _value(setting, report, gres_types)
        if value is _REFUSED:
            continue
        key = setting.option.key
        if key in ("requeue", "no-requeue"):
            given.pop("requeue", None)
            given.pop("no-requeue", None)
        if key in ("exclusive", "oversubscribe"):
            _share_or_not(given, setting, report, release)
        if key == "mail-type":
            value = _more_mail(given.get(key), value, setting, report)
        given[key] = Given(
            value, setting.value or "", setting.place, setting.provenance, setting.option, order
        )
    return Values(given, release)


def _share_or_not(given: dict[str, Given], setting: Setting, report: Report, release: str) -> None:
    """The last one counts; later releases refuse both together."""
    other = "oversubscribe" if setting.option.key == "exclusive" else "exclusive"
    if given.pop(other, None) is not None and rules.holds("exclusive-or-oversubscribe", release):
        message = f"--exclusive and --oversubscribe exclude each other since Slurm {release}"
        report.error(setting.place, "conflict", message, "keep one of them")


_REFUSED = object()


def _value(setting: Setting, report: Report, gres_types: tuple[str, ...] | None) -> Any:
    option = setting.option
    if option.argument == "none":
        return True
    if setting.value is None and option.argument == "optional":
        return {"nice": 100, "exclusive": "exclusive"}.get(option.name, "")
    text = setting.value or ""
    if len(text) > LONGEST_VALUE:
        message = f"--{option.name}: {len(text)} characters are more than Slurm takes"
        report.error(setting.place, "value-too-long", message, "give a file or a pattern instead")
        return _REFUSED
    hint = f"did you mean {setting.meant}?" if setting.meant else ""
    try:
        value = read(option, text, gres_types)
    except Problem as problem:
        told = f"--{option.name}: {problem.message}"
        if problem.odd and not _too_small(option, problem.value):
            report.warning(setting.place, "odd-value", told, hint or problem.hint)
            return _harmless(option) if problem.value is None else max(problem.value, 1)
        report.error(setting.place, _code(option), told, hint or problem.hint)
        return _REFUSED
    if hint:
        message = f"{setting.meant[1:]} is --{option.name} with the value {text!r} to sbatch"
        report.warning(setting.place, "one-dash", message, hint)
    return value


def read(option: options.Option, text: str, gres_types: tuple[str, ...] | None = None) -> Any:
    """What a value of the option means; Problem when it means nothing."""
    if option.grammar in NEED_TYPES:
        return grammar(option.grammar)(text, gres_types)  # type: ignore[call-arg]  # the one that needs the site
    return grammar(option.grammar)(text)


def _too_small(option: options.Option, value: int | None) -> bool:
    """What became of a number too large may be one that sbatch refuses after all."""
    return value is not None and value < LEAST.get(option.name, value)


def _harmless(option: options.Option) -> Any:
    return 1 if option.grammar in ("count", "nice") else ""


def _code(option: options.Option) -> str:
    special = {
        "memory": "invalid-memory",
        "time": "invalid-time",
        "gpus": "invalid-gres",
        "count": "invalid-number",
    }
    return special.get(option.grammar, f"invalid-{option.grammar}")


def _more_mail(before: Given | None, value: Any, setting: Setting, report: Report) -> tuple[str, ...]:
    known, unknown = value
    if unknown:
        words = ", ".join(unknown)
        report.warning(
            setting.place, "unknown-mail-type", f"--mail-type: sbatch drops {words}, which it does not know"
        )
    if known == ("NONE",):
        return before.value if before else ()
    return (
        *(before.value if before else ()),
        *(name for name in known if not before or name not in before.value),
    )
