"""`penstock explain`. What Slurm decides only at start is shown as the minimum that it may allocate."""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Iterable
from typing import Any

import click
import msgspec

from penstock import errors, wording
from penstock.cli import report
from penstock.model.jobspec import UNLIMITED, GresRequest, JobSpec
from penstock.model.siteview import SiteView
from penstock.render import instances, yamltext
from penstock.sbatch.diagnostics import Diagnostic
from penstock.views import explanation, pods, scripts
from penstock.wording import many

WIDTH = 110
OWN = ("--format", "--site", "--slurm")
"""Our own options; sbatch has none of these names."""


class ScriptFirst(click.Command):
    """Keeps sbatch's options, which come after the script, from click: it would read -Jhello as -h."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _in_order(args))


def _in_order(args: list[str]) -> list[str]:
    """Our own options first, then `--`, the script and sbatch's options."""
    own: list[str] = []
    rest: list[str] = []
    words = iter(args)
    for word in words:
        name, equals, _ = word.partition("=")
        if word in ("-h", "--help"):
            return ["--help"]
        if name in OWN:
            value = [] if equals else list(itertools.islice(words, 1))
            if not equals and not value:
                raise click.BadOptionUsage(name, f"Option {name!r} requires an argument.")
            own += [word, *value]
        elif word == "--" and not rest:
            rest.extend(words)
        elif not rest and word.startswith("-") and word != "-":
            hint = "Options of sbatch come after the script, as in: penstock explain job.sh -N4"
            raise errors.UsageError(f"penstock explain has no option {word}", hint=hint)
        else:
            rest.append(word)
    return [*own, "--", *rest]


@click.command(cls=ScriptFirst)
@click.option(
    "--format", "style", type=click.Choice(["text", "json", "yaml"]), default="text", help="How to print."
)
@click.option(
    "--site",
    "site_file",
    metavar="FILE",
    help="Site to explain for (JSON, TOML, YAML); default $PENSTOCK_SITE, else the installed one.",
)
@click.option("--slurm", "release", metavar="VERSION", help="Slurm release; default: the installed one.")
@click.argument("file")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def explain(
    style: str, site_file: str | None, release: str | None, file: str, arguments: tuple[str, ...]
) -> None:
    """Show what Slurm and Kubernetes will do with FILE; ARGUMENTS are options of sbatch.

    \b
    Examples:
      penstock explain job.sh                   in one screen
      penstock explain job.sh --nodes=4 -t 2:00:00
      penstock explain --format yaml job.sh | kubectl apply --dry-run=server -f -
    """
    check = scripts.Checker.load(site_file=site_file, release=release)
    try:
        source = scripts.script(file)
    except IsADirectoryError:
        hint = "Name one script; `penstock validate` accepts folders."
        raise errors.UsageError(f"{wording.printable(file)} is a folder", hint=hint) from None
    found = explanation.explain(check, source, arguments, every_pod=style != "text")
    site = check.context.site or SiteView()
    if style == "json":
        document = msgspec.json.encode(_as_text(msgspec.to_builtins(found)))
        report.emit(msgspec.json.format(document, indent=1) + b"\n")
    elif found.job is None:
        result = scripts.Result(source.shown, False, found.diagnostics)
        report.print_text([(source, result)], to_stderr=style == "yaml")
    elif style == "yaml":
        text = yamltext.documents([pods.namespace(found.job, site), *found.pods])
        report.emit(wording.without_stray_bytes(text).encode())
    else:
        report.emit("\n".join(_text(found, found.job, site)) + "\n")
    if found.job is None:
        sys.exit(1)


def _as_text(value: Any) -> Any:
    """The same without invalid UTF-8, which JSON cannot represent."""
    if isinstance(value, str):
        return wording.without_stray_bytes(value)
    if isinstance(value, dict):
        return {_as_text(key): _as_text(item) for key, item in value.items()}
    return [_as_text(item) for item in value] if isinstance(value, list | tuple) else value


def _warnings(diagnostics: Iterable[Diagnostic]) -> list[str]:
    lines: dict[str, list[int]] = {}
    for found in diagnostics:
        if found.severity == "warning":
            lines.setdefault(found.message, []).extend((found.line,) if found.line else ())
    return [
        f"{explanation.on_lines(places)}: {message}" if places else message
        for message, places in lines.items()
    ]


def _text(found: explanation.Explanation, job: JobSpec, site: SiteView) -> list[str]:
    tasks = f" for each of the {job.array.count} array tasks" if job.array else ""
    will_run = f"Kubernetes will run {many(pods.count(job), 'pod')}{tasks}{_placement(job)}"
    lines = ["Slurm will be asked for", *_rows(_request(job))]
    lines += ["", will_run, *_rows(_pod(found.pods[0], job, site))]
    different = [*found.remarks, *_warnings(found.diagnostics)]
    if different:
        lines += ["", "Differences and warnings", *(_item(wording.printable(text)) for text in different)]
    return lines


def _request(job: JobSpec) -> dict[str, str]:
    memory = f"{job.memory.mib} MiB per {job.memory.scope}" if job.memory else "the partition's default"
    most = f"-{job.nodes.maximum}" if job.nodes.maximum > job.nodes.minimum else ""
    return {
        "name": job.name,
        "partition": job.partition or "the default partition",
        "nodes": f"{job.nodes.minimum}{most}",
        "tasks": f"{job.tasks} with {many(job.cpus_per_task, 'CPU')} each, {many(job.cpus, 'CPU')} in total",
        "memory": "all of each node" if job.memory and not job.memory.mib else memory,
        "gres": _gres(job.gres),
        "time": _time(job.time_limit),
        "array": f"{job.array.count} tasks ({job.array.text})" if job.array else "",
        "after": "; ".join(f"{item.kind} {' '.join(item.jobs)}" for item in job.dependencies.conditions),
    }


def _gres(wanted: GresRequest) -> str:
    texts = {
        "per node": wanted.per_node_text,
        "per job": wanted.per_job_text,
        "per task": wanted.per_task_text,
        "per socket": wanted.per_socket_text,
    }
    return ", ".join(f"{text.replace('gres:', '')} {scope}" for scope, text in texts.items() if text)


def _pod(pod: dict[str, Any], job: JobSpec, site: SiteView) -> dict[str, str]:
    container = pod["spec"]["containers"][0]
    requests = container["resources"]["requests"]
    security = pod["spec"]["securityContext"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    return {
        "image": _image(container["image"], job, site),
        "each requests": ", ".join(f"{name} {_amount(amount)}" for name, amount in requests.items())
        + _assumed(job, site),
        "namespace": pod["metadata"]["namespace"],
        "runs as": f"uid {security['runAsUser']}, gid {security['runAsGroup']}",
        "mounts": ", ".join(mounts),
        "output": job.output + (f", errors {job.error}" if job.error else ""),
    }


def _image(first: str, job: JobSpec, site: SiteView) -> str:
    """In a list of partitions with different default images, Slurm's choice decides."""
    names = () if job.pod.image else site.partitions_of(job.partition)[1:]
    others = {name: site.pods.image_in(name) for name in names if site.pods.image_in(name) != first}
    found = [first or "none: name one with #K8S_IMAGE=..."]
    return ", ".join(found + [f"in {name} {image or 'none'}" for name, image in others.items()])


def _assumed(job: JobSpec, site: SiteView) -> str:
    if job.sharing == "exclusive":
        return " at least: all CPUs of its node"
    each = f" ({pods.usual_memory(site)} MiB per CPU, unless the partition sets another default)"
    return "" if job.memory else each


def _amount(text: str) -> str:
    if text.endswith("000m"):
        return text[:-4]
    return f"{int(text) // instances.MIB}Mi" if text.isdecimal() and int(text) > instances.MIB else text


def _rows(fields: dict[str, str]) -> list[str]:
    return [f"  {name:14}{wording.printable(text)}" for name, text in fields.items() if text]


def _item(text: str) -> str:
    return textwrap.fill(
        text, width=WIDTH, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False
    )


def _placement(job: JobSpec) -> str:
    if job.nodes.maximum and job.nodes.maximum == job.nodes.minimum:
        return ", one per node"
    return ", one per node, if Slurm allocates the minimum number of nodes"


def _time(limit: int | None) -> str:
    if limit is None:
        return "the partition's default"
    return "no limit" if limit == UNLIMITED else f"{limit // 1440}-{limit % 1440 // 60:02}:{limit % 60:02}:00"
