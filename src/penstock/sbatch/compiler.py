"""The compiler: bytes of a script, words of the command line and the environment in; JobSpec and
diagnostics out.

Pure: nothing is read but the arguments, so it is the same on a login node, in a web form and in a test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.model.jobspec import JobSpec, PodSpec, Provenance
from penstock.sbatch import (
    assemble,
    conflicts,
    environment,
    lexer,
    options,
    remarks,
    rules,
    settings,
    source,
)
from penstock.sbatch.diagnostics import Diagnostic, Place, Report
from penstock.sbatch.getopt import Parser, Setting, Token
from penstock.sbatch.shape import Shape, shape
from penstock.sbatch.values.resources import DEFAULT_TYPES

if TYPE_CHECKING:
    from penstock.model.siteview import SiteView

INHERITED: Final = (
    "job-name",
    "time",
    "account",
    "partition",
    "qos",
    "reservation",
    "chdir",
    "export",
    "begin",
)
"""What a later component of a heterogeneous job takes over from the first."""

GPU_OPTIONS: Final = frozenset(
    ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres", "ntasks-per-gpu", "cpus-per-gpu")
) | {"mem-per-gpu", "spread-job"}
"""What needs the rules of gpus.py; --spread-job because it counts nodes after them."""


class Context(msgspec.Struct, frozen=True):
    """What the script is compiled for: Slurm's release, and what sbatch would read of slurm.conf."""

    release: str = options.DEFAULT_RELEASE
    gres_types: tuple[str, ...] = DEFAULT_TYPES
    site: SiteView | None = None
    lint: bool = False


DEFAULT_CONTEXT: Final = Context()


class Compilation(msgspec.Struct, frozen=True):
    """What became of a script: one JobSpec a component (none when it is rejected), and all findings."""

    components: tuple[JobSpec, ...]
    diagnostics: tuple[Diagnostic, ...]
    given: tuple[Setting, ...] = ()

    @property
    def ok(self) -> bool:
        return not any(found.severity == "error" for found in self.diagnostics)

    @property
    def spec(self) -> JobSpec | None:
        return self.components[0] if self.components else None


def compile_script(
    data: bytes,
    *,
    name: str = "sbatch",
    arguments: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    context: Context = DEFAULT_CONTEXT,
    silenced: Sequence[str] = (),
) -> Compilation:
    """Compile one script; `name` is what the job is called when nothing else says so."""
    report = Report()
    table = options.table(context.release)
    script = source.read(data, report)
    groups = _script_settings(script, table, report)
    pod, pod_provenance = _pod(script, report)
    remarks.about_lines(script, report)
    outside = [*environment.settings(variables or {}, table), *_command_line(arguments, table, report)]
    every: list[Setting] = []
    built = []
    for number, group in enumerate(groups):
        inherited = [setting for setting in groups[0] if number and setting.option.key in INHERITED]
        own = [*inherited, *group]
        given = [*own, *_foreign(script, own, outside, table, Report() if number else report), *outside]
        every.extend(given)
        built.append(_component(given, report, context, name, script.interpreter, pod, pod_provenance))
    if not report.failed:
        _advise(built, context, report)
    if len(groups) > 1:
        report.warning(
            Place(),
            "hetjob",
            f"a heterogeneous job of {len(groups)} components; bridged partitions refuse it",
        )
    failed = report.failed
    return Compilation(() if failed else tuple(built), report.without(silenced), tuple(every))


def _component(
    given: list[Setting],
    report: Report,
    context: Context,
    name: str,
    interpreter: str,
    pod: PodSpec,
    pod_provenance: Mapping[str, Provenance],
) -> JobSpec:
    values = settings.resolve(given, report, context.gres_types, context.release)
    conflicts.check(values, report)
    asked = shape(values, report)
    conflicts.check_shape(values, asked, report)
    wanted = _with_gpus(values, asked, report)
    job = assemble.job(values, wanted, name=name, interpreter=interpreter, pod=pod)
    if not pod_provenance:
        return job
    return msgspec.structs.replace(job, provenance={**job.provenance, **pod_provenance})


def _advise(jobs: list[JobSpec], context: Context, report: Report) -> None:
    """Hold what was understood against the site, and look for what is unwise."""
    if context.site is not None:
        from penstock.sbatch import sitecheck

        for job in jobs:
            sitecheck.check(job, context.site, report)
    if context.lint:
        from penstock.sbatch import lint

        for job in jobs:
            lint.check(job, context.site, report)


def _with_gpus(values: settings.Values, asked: Shape, report: Report) -> Shape:
    """GPUs are many rules in a module of their own, loaded when a script asks for some."""
    if not GPU_OPTIONS & values.names():
        return asked
    from penstock.sbatch import gpus

    return gpus.apply(values, asked, report)


def _pod(script: source.Script, report: Report) -> tuple[PodSpec, Mapping[str, Provenance]]:
    """So are #K8S_ directives, which a plain Slurm script has none of."""
    if not script.k8s:
        return PodSpec(), {}
    from penstock.sbatch import k8s

    return k8s.parse(script.k8s, report)


def _foreign(
    script: source.Script, own: list[Setting], outside: list[Setting], table: options.Table, report: Report
) -> list[Setting]:
    """And #PBS and #BSUB lines."""
    if not script.foreign or any(setting.option.name == "ignore-pbs" for setting in (*own, *outside)):
        return []
    from penstock.sbatch import foreign

    return foreign.settings(script.foreign, own, table, report)


def _script_settings(script: source.Script, table: options.Table, report: Report) -> list[list[Setting]]:
    """The script's own settings, a list for each component."""
    groups: list[list[Token]] = [[]]
    counted = 0
    escaped = rules.holds("escaped-blank", table.release)
    for line in script.directives:
        magic = source.MAGIC if line.text.startswith(source.MAGIC) else source.OLD_MAGIC
        if magic == source.OLD_MAGIC:
            report.warning(
                Place(line.number, 1), "old-directive", "#SLURM is an old name of #SBATCH", "write #SBATCH"
            )
        words = lexer.split(line.text, len(magic), escaped_blanks=escaped)
        if words.separator:
            groups.append([])
        groups[-1].extend(Token(word.text, Place(line.number, word.offset + 1)) for word in words.words)
        remarks.about_words(line, words, report)
        counted += len(words.words)
        if counted > lexer.MOST_WORDS:
            message = f"more than {lexer.MOST_WORDS} words in directives"
            report.error(Place(line.number, 1), "too-many-directives", message)
            return [[]]
    return [_parse_group(tokens, table, report) for tokens in groups]


def _parse_group(tokens: list[Token], table: options.Table, report: Report) -> list[Setting]:
    parsed = Parser(table, report, "script").parse(tokens)
    if parsed.rest:
        remarks.about_stray(parsed.rest[0], parsed.settings, report)
        skipped = [token for token in parsed.rest[1:] if token.place.line != parsed.rest[0].place.line]
        return [*parsed.settings, *Parser(table, report, "script").parse(skipped).settings]
    return list(parsed.settings)


def _command_line(arguments: Sequence[str], table: options.Table, report: Report) -> list[Setting]:
    tokens = [Token(text, Place(origin="command line")) for text in arguments]
    parsed = Parser(table, report, "command line").parse(tokens)
    if parsed.rest:
        stray = parsed.rest[0]
        report.error(
            stray.place,
            "stray-word",
            f"{stray.text!r} is no option",
            "options only; the script is named first",
        )
    return list(parsed.settings)
