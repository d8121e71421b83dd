"""`penstock explain`: what Slurm will be asked, which pods will run, and what of the script will not be
honoured.

Nothing is submitted. Where Slurm decides only at start (which nodes, how tasks fall on them) the
smallest allocation it may give is shown, and said to be that.
"""

from __future__ import annotations

import dataclasses
import os
import pwd
import sys
import textwrap
from typing import Any

import click
import msgspec

from penstock import errors, wording
from penstock.cli import report, scriptfirst
from penstock.daemon import settings
from penstock.model import homes, launches
from penstock.model.jobspec import UNLIMITED, GresRequest, JobSpec
from penstock.model.siteview import SiteView
from penstock.render import instances, namespaces, pods, yamltext
from penstock.sbatch import commands, compiler, footprint
from penstock.views import scripts
from penstock.wording import many

WIDTH = 110

UNNAMED_ACCOUNT = "your-account"  # stands for the default account, which only the accounting knows
DEFAULT_MIB = 1024
"""Memory of a CPU where neither the script nor the site says."""

MOST_PODS = 10_000
"""More than any cluster has nodes: a slip of the finger in --nodes is not to fill this host's memory."""


@click.command(cls=scriptfirst.ScriptFirst)
@click.option(
    "--format", "style", type=click.Choice(["text", "json", "yaml"]), default="text", help="How to print."
)
@click.option(
    "--site",
    "site_file",
    metavar="FILE",
    help="The site to explain for (JSON, TOML, YAML); else $PENSTOCK_SITE, else the installed one.",
)
@click.option("--slurm", "release", metavar="VERSION", help="Slurm's release (default: the installed one).")
@click.argument("file")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def explain(
    style: str, site_file: str | None, release: str | None, file: str, arguments: tuple[str, ...]
) -> None:
    """Say what Slurm and Kubernetes will do with FILE; ARGUMENTS are options as sbatch takes them.

    \b
    Examples:
      penstock explain job.sh                   in one screen
      penstock explain job.sh --nodes=4 -t 2:00:00
      penstock explain --format yaml job.sh | kubectl apply --dry-run=server -f -
    """
    check = scripts.Checker.load(site_file=site_file, release=release, lint=False, silenced=())
    try:
        source = scripts.script(file)
    except IsADirectoryError:
        hint = "Name one script; `penstock validate` takes folders."
        raise errors.UsageError(f"{wording.printable(file)} is a folder", hint=hint) from None
    done = check.compile(source, arguments)
    site = check.context.site or SiteView()
    if style != "text" and done.spec and done.spec.nodes.minimum > MOST_PODS:
        hint = "Leave --format out, or ask for fewer --nodes."
        raise errors.UsageError(f"{done.spec.nodes.minimum} pods are too many to write out", hint=hint)
    manifests = _pods(done.spec, source.data, site) if done.spec else []
    if style == "json":
        report.emit(_json(done, manifests, source.data))
    elif done.spec is None:
        report.print_text([(source, False, done.diagnostics)], to_stderr=style == "yaml")
    elif style == "yaml":
        report.emit(_bytes(yamltext.documents([_namespace(done.spec, site), *manifests])))
    else:
        report.emit("\n".join(_text(done, manifests, site, source.data)) + "\n")
    if done.spec is None:
        sys.exit(1)


def _json(done: compiler.Compilation, manifests: list[dict[str, Any]], script: bytes) -> bytes:
    """One shape for scripts that are accepted and for those that are not: these have no job."""
    document = {
        "job": done.spec,
        "pods": manifests,
        "remarks": remarks(done, script) if done.spec else [],
        "diagnostics": scripts.clean(done.diagnostics),
    }
    text = msgspec.json.encode(_as_text(msgspec.to_builtins(document)))
    return msgspec.json.format(text, indent=1) + b"\n"


def _as_text(value: Any) -> Any:
    """The same without stray bytes, which no JSON can carry."""
    if isinstance(value, str):
        return value if value.isprintable() else _bytes(value).decode()
    if isinstance(value, dict):
        return {_as_text(key): _as_text(item) for key, item in value.items()}
    return [_as_text(item) for item in value] if isinstance(value, list | tuple) else value


def _bytes(text: str) -> bytes:
    """As UTF-8; what was no text in the script is shown as such."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()


def owner_named(name: str = "") -> launches.Owner:
    """A user of this host; a number that is no user stands for itself."""
    try:
        entry = pwd.getpwnam(name) if name else pwd.getpwuid(os.getuid())
    except KeyError:
        if not name.isdecimal() or not 0 < int(name) < 2**31:
            raise errors.UsageError(f"{name!r} is neither a user of this host nor a number") from None
        return launches.Owner(name=name, uid=int(name), gid=int(name), groups=())
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return launches.Owner(
        name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, groups=groups, home=entry.pw_dir
    )


def pod_settings(site: SiteView) -> pods.PodSettings:
    """What the site decides about pods, read as penstockd reads it; a view written by hand says less."""
    if site.penstockd:
        return dataclasses.replace(_settings(site.penstockd).pods, cluster=site.cluster)
    return pods.PodSettings(
        cluster=site.cluster,
        default_image=site.default_image,
        partition_images={name: each.image for name, each in site.partitions.items() if each.image},
        shared_mounts=site.shared_mounts,
        namespace_pattern=site.namespace_pattern,
        kill_wait=site.kill_wait,
    )


def _settings(document: dict[str, Any]) -> settings.Settings:
    try:
        return msgspec.convert(document, settings.Settings)
    except msgspec.ValidationError as error:
        raise errors.UsageError(
            f"the site's view has settings of penstockd that this version does not know: {error}",
            hint="`penstock apply` writes it anew.",
        ) from error


def _namespace(job: JobSpec, site: SiteView) -> dict[str, Any]:
    owner = _owner(job)
    name = pods.namespace_of(owner, pod_settings(site))
    return namespaces.render_namespace(name, owner, shared=homes.is_shared(site.namespace_pattern))


def _owner(job: JobSpec) -> launches.Owner:
    """Who asks, charged to the account that the script names."""
    return dataclasses.replace(owner_named(), account=job.account or UNNAMED_ACCOUNT)


def _pods(job: JobSpec, script: bytes, site: SiteView) -> list[dict[str, Any]]:
    share = footprint.even_share(job)
    wanted = instances.Instance(
        owner=_owner(job),
        job_id=0,
        cpus=share.cpus,
        memory_mib=share.memory_mib or share.cpus * _usual_memory(site),
        gpus=share.gpus,
        gpu_resource=site.gpu_resource(_gpu_type(job)),
        gpu_type=_gpu_type(job),
        qos=job.qos,
        wish=job.pod,
        partition=next(iter(site.partitions_of(job.partition)), ""),
    )
    return instances.job_pods(
        wanted, ranks=min(_count(job), MOST_PODS), script=script, settings=pod_settings(site)
    )


def _usual_memory(site: SiteView) -> int:
    return site.memory_per_cpu_mib or DEFAULT_MIB


def _count(job: JobSpec) -> int:
    return max(job.nodes.minimum, 1)


def _gpu_type(job: JobSpec) -> str:
    """The one type of GPU that the job names; nothing when it names none, or several."""
    named = {gres.type for gres in job.gres.everything if gres.name == "gpu" and gres.type}
    return named.pop() if len(named) == 1 else ""


def remarks(done: compiler.Compilation, script: bytes) -> list[str]:
    """Everything that is approximated, dropped or refused in a bridged partition."""
    several = [] if any(found.code == "idle-pods" for found in done.diagnostics) else _of_nodes(done.spec)
    return [*_of_owner(), *_of_options(done), *several, *(_of_job(done.spec, script) if done.spec else ())]


def _of_owner() -> list[str]:
    return (
        ["jobs of root are refused at submission unless the site allows them"]
        if not owner_named().uid
        else []
    )


def _of_options(done: compiler.Compilation) -> list[str]:
    said = {}
    for setting in done.given:
        option = setting.option
        if option.treatment in ("approximated", "ignored", "refused"):
            said[option.key] = f"--{option.name} is {option.treatment}: {option.note}"
    return list(said.values())


def _of_nodes(job: JobSpec | None) -> list[str]:
    """Where no site is known, which could say it as a warning."""
    if job is None or job.nodes.minimum < 2:
        return []
    return ["the script runs in the first pod; the others hold their room: nothing starts in them yet"]


def _of_job(job: JobSpec, script: bytes) -> list[str]:
    said = []
    if job.signal is not None and not job.signal.to_batch:
        said.append(
            "--signal without B: reaches job steps alone, and none run in pods yet: write --signal=B:…"
        )
    return said + [
        f"{_on_lines(call.lines)}: {', '.join(call.names)}: {call.becomes}"
        for call in commands.calls(script, job)
    ]


def _of_lines(done: compiler.Compilation) -> list[str]:
    """Each warning once, with the lines that it is about."""
    lines: dict[str, list[int]] = {}
    for found in done.diagnostics:
        if found.severity == "warning":
            lines.setdefault(found.message, []).extend((found.line,) if found.line else ())
    return [
        f"{_on_lines(tuple(places))}: {message}" if places else message for message, places in lines.items()
    ]


def _on_lines(lines: tuple[int, ...], most: int = 4) -> str:
    return f"line{'s' if len(lines) > 1 else ''} {wording.some([str(number) for number in lines], most)}"


def _text(
    done: compiler.Compilation, manifests: list[dict[str, Any]], site: SiteView, script: bytes
) -> list[str]:
    job = done.spec
    assert job is not None  # noqa: S101 - a rejected script ends before
    lines = ["Slurm will be asked", *_rows(_request(job))]
    lines += [
        "",
        f"Kubernetes will run {many(_count(job), 'pod')}{_for_each(job)}{_open(job)}",
        *_rows(_pod(manifests[0], job, site)),
    ]
    dropped = [*remarks(done, script), *_of_lines(done)]
    if dropped:
        lines += ["", "Not as written", *(_item(wording.printable(text)) for text in dropped)]
    return lines


def _request(job: JobSpec) -> dict[str, str]:
    memory = f"{job.memory.mib} MiB a {job.memory.scope}" if job.memory else "the partition's default"
    return {
        "name": job.name,
        "partition": job.partition or "the default one",
        "nodes": f"{job.nodes.minimum}-{job.nodes.maximum}"
        if job.nodes.maximum > job.nodes.minimum
        else str(job.nodes.minimum),
        "tasks": f"{job.tasks} of {many(job.cpus_per_task, 'CPU')}, {many(job.cpus, 'CPU')} in all",
        "memory": "all of each node" if job.memory and not job.memory.mib else memory,
        "gres": _gres(job.gres),
        "time": _time(job.time_limit),
        "array": f"{job.array.count} tasks ({job.array.text})" if job.array else "",
        "after": "; ".join(f"{item.kind} {' '.join(item.jobs)}" for item in job.dependencies.conditions),
    }


def _gres(wanted: GresRequest) -> str:
    texts = {
        "a node": wanted.per_node_text,
        "for the job": wanted.per_job_text,
        "a task": wanted.per_task_text,
        "a socket": wanted.per_socket_text,
    }
    return ", ".join(f"{text.replace('gres:', '')} {scope}" for scope, text in texts.items() if text)


def _pod(pod: dict[str, Any], job: JobSpec, site: SiteView) -> dict[str, str]:
    container = pod["spec"]["containers"][0]
    requests = container["resources"]["requests"]
    security = pod["spec"]["securityContext"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    return {
        "image": _image(container["image"], job, site),
        "each asks for": ", ".join(f"{name} {_amount(amount)}" for name, amount in requests.items())
        + _assumed(job, site),
        "namespace": pod["metadata"]["namespace"],
        "runs as": f"uid {security['runAsUser']}, gid {security['runAsGroup']}",
        "mounts": ", ".join(mounts),
        "output": job.output + (f", errors {job.error}" if job.error else ""),
    }


def _image(first: str, job: JobSpec, site: SiteView) -> str:
    """Which it will be Slurm decides, where partitions of a list have images of their own."""
    names = () if job.pod.image else site.partitions_of(job.partition)[1:]
    others = {name: site.image_in(name) for name in names if site.image_in(name) != first}
    found = [first or "none: name one with #K8S_IMAGE=..."]
    return ", ".join(found + [f"in {name} {image or 'none'}" for name, image in others.items()])


def _assumed(job: JobSpec, site: SiteView) -> str:
    if job.sharing == "exclusive":
        return " at least: all CPUs of its node"
    return "" if job.memory else f" ({_usual_memory(site)} MiB a CPU, unless the partition says otherwise)"


def _amount(text: str) -> str:
    """Bytes and thousandths of a CPU in words people use."""
    if text.endswith("000m"):
        return text[:-4]
    return f"{int(text) // instances.MIB}Mi" if text.isdecimal() and int(text) > instances.MIB else text


def _rows(fields: dict[str, str]) -> list[str]:
    return [f"  {name:14}{wording.printable(text)}" for name, text in fields.items() if text]


def _item(text: str) -> str:
    return textwrap.fill(
        text, width=WIDTH, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False
    )


def _for_each(job: JobSpec) -> str:
    return f" for each of the {job.array.count} array tasks" if job.array else ""


def _open(job: JobSpec) -> str:
    if job.nodes.maximum and job.nodes.maximum == job.nodes.minimum:
        return ", one a node"
    return ", one a node, if Slurm gives it as few nodes as it may"


def _time(limit: int | None) -> str:
    if limit is None:
        return "the partition's default"
    return "no limit" if limit == UNLIMITED else f"{limit // 1440}-{limit % 1440 // 60:02}:{limit % 60:02}:00"
