"""Compiles a script, with command line and environment, to JobSpecs and diagnostics.

A pure function of its arguments, so it works the same on a login node, in a web form and in a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.model.jobspec import JobSpec, PodSpec, Provenance
from penstock.sbatch import (
    assembly,
    bridged,
    conflicts,
    lexer,
    options,
    precedence,
    remarks,
    rules,
    sbatchenv,
    source,
)
from penstock.sbatch.diagnostics import Diagnostic, Place, Report
from penstock.sbatch.getopt import Parser, Setting, Token
from penstock.sbatch.shape import Shape, shape
from penstock.sbatch.values.gres import DEFAULT_TYPES

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
"""Options that later components of a heterogeneous job inherit from the first."""

GPU_OPTIONS: Final = frozenset(
    ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres", "ntasks-per-gpu", "cpus-per-gpu")
) | {"mem-per-gpu", "spread-job"}
"""Options that need the rules of gpus.py; --spread-job because it counts nodes after them."""

MOST_READ_ANEW: Final = 2000
"""Limit of foreign lines times components: more than people write, and still under a second."""


class Context(msgspec.Struct, frozen=True):
    """The target: Slurm's release, what sbatch would read of slurm.conf, and the site."""

    release: str = options.DEFAULT_RELEASE
    gres_types: tuple[str, ...] = DEFAULT_TYPES
    other_gres: bool = False
    """Whether Slurm may have more GresTypes; then unknown ones are a warning only."""
    site: SiteView | None = None
    workdir: str = ""
    """The folder in which the job will probably be submitted; empty if unknown."""
    lint: bool = False
    as_root: bool = True
    """Whether root submits it: only root may use --uid and --gid."""

    @property
    def known_gres(self) -> tuple[str, ...] | None:
        """The only valid names; None if there may be others."""
        return None if self.other_gres else self.gres_types


DEFAULT_CONTEXT: Final = Context()


class Compilation(msgspec.Struct, frozen=True):
    """One JobSpec per component (none if the script is rejected), and all diagnostics."""

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
    """Compile a script; `name` is the default job name."""
    report = Report()
    table = options.table(context.release)
    script = source.read(data, report)
    groups = _few_enough(_script_settings(script, table, report), script, report)
    remarks.about_values((setting for group in groups for setting in group), report)
    pod, pod_provenance = _pod(script, report)
    remarks.about_lines(script, report)
    outside = [*sbatchenv.settings(variables or {}, table), *_command_line(arguments, table, report)]
    every: list[list[Setting]] = []
    built = []
    shared = _in_force(setting for setting in groups[0] if setting.option.key in INHERITED)
    for number, group in enumerate(groups):
        own = [*shared, *group] if number else group
        given = [*own, *_foreign(script, own, outside, table, Report() if number else report), *outside]
        every.append(given)
        built.append(_component(given, report, context, name, script.interpreter, pod, pod_provenance))
    if not report.failed:
        _check_site(built, context, report)
    bridged.check(built, every, context.site, report)
    flat = tuple(setting for given in every for setting in given)
    if not context.as_root:
        _refuse_other_owners(flat, report)
    failed = report.failed
    return Compilation(() if failed else tuple(built), report.without(silenced), flat)


def _refuse_other_owners(given: Iterable[Setting], report: Report) -> None:
    for setting in given:
        if setting.option.name in ("uid", "gid"):
            message = f"--{setting.option.name} is for root only"
            report.error(setting.place, "root-only", message, "leave it out: your jobs run as you")


def _few_enough(groups: list[list[Setting]], script: source.Script, report: Report) -> list[list[Setting]]:
    """Limit components: each one reads all #PBS and #BSUB lines again."""
    if len(groups) == 1 or len(groups) * len(script.foreign) <= MOST_READ_ANEW:
        return groups
    message = f"{len(script.foreign)} #PBS or #BSUB lines in {len(groups)} components of a heterogeneous job"
    report.error(Place(script.foreign[0].number, 1), "too-many-directives", message, "write them as #SBATCH")
    return groups[:1]


def _in_force(given: Iterable[Setting]) -> list[Setting]:
    """The last setting of each option, so that thousands of components do not repeat thousands of lines."""
    last: dict[str, Setting] = {}
    for setting in given:
        last.pop(setting.option.key, None)
        last[setting.option.key] = setting
    return list(last.values())


def _component(
    given: list[Setting],
    report: Report,
    context: Context,
    name: str,
    interpreter: str,
    pod: PodSpec,
    pod_provenance: Mapping[str, Provenance],
) -> JobSpec:
    values = precedence.resolve(given, report, context.known_gres, context.release)
    conflicts.check(values, report)
    asked = shape(values, report)
    conflicts.check_shape(values, asked, report)
    wanted = _with_gpus(values, asked, report)
    job = assembly.job(values, wanted, name=name, interpreter=interpreter, pod=pod)
    if not pod_provenance:
        return job
    return msgspec.structs.replace(job, provenance={**job.provenance, **pod_provenance})


def _check_site(jobs: list[JobSpec], context: Context, report: Report) -> None:
    """Check the jobs against the site, and lint them if asked to."""
    if context.other_gres:
        _warn_of_unknown_gres(jobs, context, report)
    if context.site is not None:
        from penstock.sbatch import sitecheck

        for job in jobs:
            sitecheck.check(job, context.site, report, workdir=context.workdir)
    if context.lint:
        from penstock.sbatch import lint

        for job in jobs:
            lint.check(job, context.site, report)


def _warn_of_unknown_gres(jobs: list[JobSpec], context: Context, report: Report) -> None:
    """Warn about unknown generic resources if the GresTypes of slurm.conf are not all known."""
    from penstock.sbatch import nearest, sitecheck

    types = context.gres_types
    for job in jobs:
        for name in dict.fromkeys(each.name for each in job.gres.everything):
            if name not in (*types, "cpu") and not name.startswith("license/"):
                hint = nearest.hint(name, types, f"known here: {', '.join(types) or 'none'}")
                message = f"{name!r} may not be a generic resource of this site"
                report.warning(sitecheck.place_of(job, "gres"), "unknown-gres", message, hint)


def _with_gpus(values: precedence.Values, asked: Shape, report: Report) -> Shape:
    """Apply the rules of GPUs; their module is loaded only if needed."""
    if not GPU_OPTIONS & values.names():
        return asked
    from penstock.sbatch import gpus

    return gpus.apply(values, asked, report)


def _pod(script: source.Script, report: Report) -> tuple[PodSpec, Mapping[str, Provenance]]:
    """Parse #K8S_ directives; their module is loaded only if needed."""
    if not script.k8s:
        return PodSpec(), {}
    from penstock.sbatch import k8s

    return k8s.parse(script.k8s, report)


def _foreign(
    script: source.Script, own: list[Setting], outside: list[Setting], table: options.Table, report: Report
) -> list[Setting]:
    """Parse #PBS and #BSUB lines; their module is loaded only if needed."""
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
            message = "#SLURM is an old name of #SBATCH"
            report.warning(Place(line.number, 1), "old-directive", message, "write #SBATCH")
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
        message = f"{parsed.rest[0].text!r} is not an option"
        report.error(parsed.rest[0].place, "stray-word", message, "give the script first, then options")
    return list(parsed.settings)
