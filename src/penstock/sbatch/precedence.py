"""Settings → values: one per option, by precedence, with its provenance.

The order is sbatch's: script, SBATCH_* variables, command line; the last one wins, except for --mail-type,
which adds up. A value that sbatch refuses is an error even if a later one would replace it.
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
"""More than slurmctld accepts in any field of a job."""

LEAST: Final = {"ntasks": 0, "cpus-per-task": 1}
"""Minimums that sbatch checks after it has read all options."""


class Given(msgspec.Struct, frozen=True):
    """The effective value of an option."""

    value: Any
    text: str
    place: Place
    provenance: Provenance
    option: options.Option
    order: int = 0


class Values:
    """Given options by name."""

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

    def chosen(self, name: str) -> bool:
        """Whether it is in the script or on the command line, not only in the environment."""
        found = self._given.get(name)
        return found is not None and found.provenance.origin != "environment"


def resolve(
    settings: Iterable[Setting],
    report: Report,
    gres_types: tuple[str, ...] | None,
    release: str = options.DEFAULT_RELEASE,
) -> Values:
    """Parse all values; keep the last one of each option."""
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
            _drop_contrary(given, setting, report, release)
        if key == "mail-type":
            value = _more_mail(given.get(key), value, setting, report)
        given[key] = Given(
            value, setting.value or "", setting.place, setting.provenance, setting.option, order
        )
    return Values(given, release)


def _drop_contrary(given: dict[str, Given], setting: Setting, report: Report, release: str) -> None:
    """The last of --exclusive and --oversubscribe counts; later releases refuse both together."""
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
        message = f"--{option.name}: {len(text)} characters are more than Slurm accepts"
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
        message = f"sbatch reads {setting.meant[1:]} as --{option.name} with the value {text!r}"
        report.warning(setting.place, "one-dash", message, hint)
    return value


def read(option: options.Option, text: str, gres_types: tuple[str, ...] | None = None) -> Any:
    """Parse a value of the option. Raises Problem if it is invalid."""
    if option.grammar in NEED_TYPES:
        return grammar(option.grammar)(text, gres_types)  # type: ignore[call-arg]  # the one that needs the site
    return grammar(option.grammar)(text)


def _too_small(option: options.Option, value: int | None) -> bool:
    """Whether sbatch refuses what an overflow has made of the number."""
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
        message = f"--mail-type: sbatch ignores the unknown {words}"
        report.warning(setting.place, "unknown-mail-type", message)
    earlier: tuple[str, ...] = before.value if before else ()
    return earlier if known == ("NONE",) else tuple(dict.fromkeys((*earlier, *known)))
