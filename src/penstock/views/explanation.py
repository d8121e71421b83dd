"""Explains a script without submitting it: the request to Slurm, the pods, and what has no effect in pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock import errors, wording
from penstock.model import podcommands
from penstock.model.jobspec import JobSpec
from penstock.model.siteview import SiteView
from penstock.sbatch import calledprograms, compiler
from penstock.sbatch.diagnostics import Diagnostic
from penstock.views import pods, scripts


class Explanation(msgspec.Struct, frozen=True):
    job: JobSpec | None
    """None if the script is rejected."""
    pods: list[dict[str, Any]]
    remarks: tuple[str, ...]
    """Everything approximated, ignored or refused in a bridged partition."""
    diagnostics: tuple[Diagnostic, ...]


def explain(
    check: scripts.Checker, source: scripts.Source, arguments: Sequence[str], *, every_pod: bool
) -> Explanation:
    """Explain the script with these options of sbatch. Raises UsageError if it has too many pods to list."""
    done = check.compile(source, arguments)
    job, found = done.spec, scripts.clean(done.diagnostics)
    if job is None:
        return Explanation(None, [], (), found)
    if every_pod and job.nodes.minimum > pods.MOST:
        hint = "Omit --format, or request fewer --nodes."
        raise errors.UsageError(f"{job.nodes.minimum} pods are too many to list", hint=hint)
    site = check.context.site or SiteView()
    made = pods.of_job(job, source.data, site, here=check.context.workdir)
    return Explanation(job, made, tuple(_remarks(done, job, source.data, site.pods.pod_commands)), found)


def _remarks(
    done: compiler.Compilation, job: JobSpec, script: bytes, offered: Sequence[str]
) -> Iterator[str]:
    """`offered` are the commands of Slurm's that the site lets pods call."""
    if not pods.owner_named().uid:
        yield "jobs of root are refused at submission, unless the site allows them"
    for option in {setting.option.key: setting.option for setting in done.given}.values():
        if option.treatment in ("approximated", "ignored", "refused"):
            yield f"--{option.name} is {option.treatment}: {option.note}"
    if job.nodes.minimum > 1 and not any(found.code == "idle-pods" for found in done.diagnostics):
        yield "the script runs in the first pod; the others only hold resources: nothing starts in them yet"
    if job.signal is not None and not job.signal.to_batch:
        yield "--signal without B: signals only job steps, and none run in pods yet; use --signal=B:…"
    for call in calledprograms.calls(script, job):
        withheld = [name for name in call.names if name in podcommands.OFFERED and name not in offered]
        if withheld:
            yield f"{on_lines(call.lines)}: {', '.join(withheld)}: this site does not offer it in pods"
        if kept := [name for name in call.names if name not in withheld]:
            yield f"{on_lines(call.lines)}: {', '.join(kept)}: {call.becomes}"


def on_lines(lines: Sequence[int], most: int = 4) -> str:
    """Such as `lines 3, 5 and 2 more`."""
    return f"line{'s' if len(lines) > 1 else ''} {wording.some([str(number) for number in lines], most)}"
