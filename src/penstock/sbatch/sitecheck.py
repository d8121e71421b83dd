"""Checks a job against a site: unknown names, limits, requests that no node can satisfy.

Only what can never work is an error; a job that has to wait is fine.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable

from penstock.model.jobspec import UNLIMITED, JobSpec
from penstock.model.podpolicy import PartitionPolicy
from penstock.model.siteview import NodeKind, SiteView
from penstock.sbatch import footprint, images, nearest, tolerations
from penstock.sbatch.diagnostics import Place, Report
from penstock.sbatch.values import arrays, choices, times

Say = Callable[[Place, str, str, str], None]


def check(job: JobSpec, site: SiteView, report: Report, *, workdir: str = "") -> None:
    """Check everything; `workdir` is the folder of submission, if known."""
    names, unknown = _partitions(job, site, report)
    if not unknown:
        _time(job, site, names, report)
        if all(site.partitions[name].whole for name in names) and (names or site.complete):
            _nodes(job, site, names, report)
    _array(job, site, report)
    _directives(job, site, report)
    _placement(job, [site.pods.partition(name) for name in names], report)
    if any(name in site.pods.partitions for name in names) or not site.partitions:
        _workdir(job, site, workdir, report)
    for image in dict.fromkeys([job.pod.image] if job.pod.image else map(site.pods.image_in, names or ("",))):
        _registry(job, image, site, report)


def _nodes(job: JobSpec, site: SiteView, partitions: list[str], report: Report) -> None:
    nodes = [kind for kind in site.nodes if _serves(kind, partitions)]
    if nodes:
        say = report.error if site.complete else report.warning
        _features(job, nodes, say)
        _gpu_types(job, nodes, say)
        _fits(job, nodes, report)


def place_of(job: JobSpec, field: str) -> Place:
    """The place from which a field of the job comes."""
    found = job.provenance.get(field)
    if found is None or not found.line:
        return Place(origin=f"{found.origin} {found.name}".strip() if found and found.name else "")
    return Place(found.line, found.column)


def _partitions(job: JobSpec, site: SiteView, report: Report) -> tuple[list[str], bool]:
    """The known partitions of the job, and whether it has unknown ones."""
    if not site.partitions:
        return [], False
    unknown, say = False, report.error if site.complete else report.warning
    for name in job.partition.split(",") if job.partition else ():
        if name in site.partitions:
            continue
        unknown = True
        hint = nearest.hint(name, site.partitions, f"this site has {', '.join(site.partitions)}")
        say(place_of(job, "partition"), "unknown-partition", f"there is no partition {name!r}", hint)
    return site.partitions_of(job.partition), unknown


def _time(job: JobSpec, site: SiteView, names: list[str], report: Report) -> None:
    """An error if no partition allows it; otherwise the job waits for one that does."""
    over = [name for name in names if _is_over(job.time_limit, site.partitions[name].max_time)]
    say = report.error if len(over) == len(names) else report.warning
    for name in over:
        longest = site.partitions[name].max_time
        wanted = "no limit" if job.time_limit == UNLIMITED else f"{job.time_limit} minutes"
        message = f"{wanted} requested, partition {name} allows {longest}"
        say(place_of(job, "time_limit"), "over-max-time", message, f"request --time={longest} or less")


def _is_over(asked: int | None, longest: str) -> bool:
    return asked is not None and bool(longest) and asked > times.limit(longest)


def _serves(kind: NodeKind, partitions: list[str]) -> bool:
    return not kind.partitions or not partitions or bool(set(kind.partitions) & set(partitions))


def _features(job: JobSpec, nodes: list[NodeKind], say: Say) -> None:
    known = {feature for kind in nodes for feature in kind.features}
    for name in choices.feature_names(job.features):
        if name not in known:
            hint = nearest.hint(name, known, f"known: {', '.join(sorted(known)) or 'none'}")
            message = f"no node has the feature {name!r}"
            say(place_of(job, "features"), "unknown-feature", message, hint)


def _gpu_types(job: JobSpec, nodes: list[NodeKind], say: Say) -> None:
    known = {kind.gpu_type for kind in nodes if kind.gpus and kind.gpu_type}
    for gres in job.gres.everything:
        if gres.name == "gpu" and gres.type and gres.type not in known:
            hint = nearest.hint(gres.type, known, f"this site has {', '.join(sorted(known)) or 'none'}")
            message = f"no node has GPUs of type {gres.type!r}"
            say(place_of(job, "gres"), "unknown-gpu-type", message, hint)


def _fits(job: JobSpec, nodes: list[NodeKind], report: Report) -> None:
    """Check each amount separately first, for a precise message, then all together."""
    least = footprint.least_per_node(job)
    amounts = (
        ("cpus", least.cpus, max(kind.cpus for kind in nodes), "CPUs"),
        ("memory", least.memory_mib, max(kind.memory_mib for kind in nodes), "MiB of memory"),
        ("gres", least.gpus, max(kind.gpus for kind in nodes), "GPUs"),
    )
    in_all = (
        ("nodes", job.nodes.minimum, sum(kind.count for kind in nodes), "nodes"),
        ("cpus", job.cpus, sum(kind.count * kind.cpus for kind in nodes), "CPUs"),
        ("gres", footprint.gpus_in_all(job), sum(kind.count * kind.gpus for kind in nodes), "GPUs"),
    )
    too_much = {field for field, wanted, most, _ in amounts if wanted > most}
    for field, wanted, most, noun in amounts:
        if field in too_much:
            message = f"{wanted} {noun} on one node requested, the largest node has {most}"
            report.error(place_of(job, field), "never-fits", message, "request less, or more nodes")
    for field, wanted, most, noun in in_all:
        if wanted > most and field not in too_much:
            too_much.add(field)
            message = f"{wanted} {noun} requested, the site has {most}"
            report.error(place_of(job, field), "never-fits", message, "request less")
    if not too_much and not any(_holds(kind, least) for kind in nodes):
        message = f"no node has {least.cpus} CPUs, {least.memory_mib} MiB and {least.gpus} GPUs at once"
        report.error(place_of(job, "cpus"), "never-fits", message, "spread the job over more nodes")


def _holds(kind: NodeKind, least: footprint.Footprint) -> bool:
    return kind.cpus >= least.cpus and kind.memory_mib >= least.memory_mib and kind.gpus >= least.gpus


def _array(job: JobSpec, site: SiteView, report: Report) -> None:
    if job.array is None:
        return
    last, step, most = job.array.last, arrays.largest_step(job.array.text), site.max_array_size - 1
    for what, number, hint in (
        ("id", last, "number the tasks from 0 or split the array"),
        ("step", step, "write the ids one by one"),
    ):
        if number > most:
            message = f"array {what} {number} is above this site's maximum, {most}"
            report.error(place_of(job, "array"), "array-too-large", message, hint)
            return


def _directives(job: JobSpec, site: SiteView, report: Report) -> None:
    for field, origin in job.provenance.items():
        name = origin.name.removeprefix("#K8S_")
        if field.startswith("pod.") and name in site.pods.forbidden_directives:
            message = f"#K8S_{name} is not allowed at this site"
            report.error(Place(origin.line, 1), "forbidden-directive", message, "ask the site's operators")


def _placement(job: JobSpec, partitions: list[PartitionPolicy], report: Report) -> None:
    for each in partitions:
        for field, complaint, hint in tolerations.refusals(job.pod, each):
            report.error(place_of(job, field), "forbidden-placement", complaint, hint)


def _workdir(job: JobSpec, site: SiteView, here: str, report: Report) -> None:
    """The check of job_submit.lua; a warning if the job may still be submitted from another folder."""
    path = os.path.normpath(job.workdir if job.workdir.startswith("/") else f"{here}/{job.workdir}")
    seen = (*site.pods.shared_mounts, *(mount.target for mount in job.pod.mounts))
    chosen = job.pod.workdir or job.pod.own_entrypoint
    if not path.startswith("/") or chosen or not site.pods.shared_mounts:
        return
    if any(path == folder or path.startswith(f"{folder}/") for folder in seen):
        return
    refused = site.missing_workdir == "refuse"
    then = "sbatch refuses the job" if refused else "the job runs in its pod's /tmp, whose files go with it"
    hint = f"submit from a folder under {' or '.join(site.pods.shared_mounts)}, or use --chdir"
    say = report.error if refused and job.workdir.startswith("/") else report.warning
    say(place_of(job, "workdir"), "missing-workdir", f"pods do not see {path}: {then}", hint)


def _registry(job: JobSpec, image: str, site: SiteView, report: Report) -> None:
    if image and not images.is_allowed(image, site.pods.allowed_images):
        message = f"the image {images.full_name(image)} is not allowed at this site"
        hint = f"allowed: {', '.join(site.pods.allowed_images)}"
        report.error(place_of(job, "pod.image"), "forbidden-registry", message, hint)
