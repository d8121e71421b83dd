"""Reports what job_submit.lua will refuse in bridged partitions, before the job is submitted.

The Lua decides, inside slurmctld; tests/sbatch/test_submit_hook.py compares both. Without a site the bridged
partitions are unknown: then only what they refuse and no plain partition needs is an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.jobspec import JobSpec
from penstock.model.siteview import SiteView
from penstock.sbatch import footprint
from penstock.sbatch.diagnostics import Place, Report
from penstock.sbatch.getopt import Setting

_DELETE = "\x7f"


def check(
    jobs: Sequence[JobSpec], given: Sequence[Sequence[Setting]], site: SiteView | None, report: Report
) -> None:
    """Check all components, each with its settings."""
    kinds = [_how_bridged(job, site) for job in jobs]
    for number, (job, kind, settings) in enumerate(zip(jobs, kinds, given, strict=True)):
        if kind == "some":
            message = f"partitions {job.partition} are partly pods and partly not"
            report.error(_place_of(settings, "partition"), "partly-bridged", message, "choose one kind")
        if kind == "all":
            _container(settings, report)
            _idle(job, settings, site, report)
        if kind in ("all", "") and not number:
            _name(job.name, settings, report)
    if len(jobs) > 1:
        _components(kinds, report)


def _how_bridged(job: JobSpec, site: SiteView | None) -> str:
    """ "all", "none" or "some" of its partitions; empty if unknown, as with a reservation's partition."""
    if site is None or not site.partitions or (job.reservation and not job.partition):
        return ""
    bridged = [name in site.pods.partitions for name in site.partitions_of(job.partition)]
    if not bridged:
        return ""
    return "all" if all(bridged) else "some" if any(bridged) else "none"


def _container(settings: Sequence[Setting], report: Report) -> None:
    found = [setting for setting in settings if setting.option.key == "container"]
    if found and found[-1].value:
        hint = "name the image with a line #K8S_IMAGE=... in the script"
        report.error(found[-1].place, "container", "--container is not used in partitions of pods", hint)


def _idle(job: JobSpec, settings: Sequence[Setting], site: SiteView | None, report: Report) -> None:
    """Warn about more nodes than one: nothing can be started in the other pods."""
    if report.failed:
        return
    gpus_of_a_node = max((kind.gpus for kind in site.nodes), default=0) if site else 0
    for_gpus = -(-footprint.gpus_in_all(job) // gpus_of_a_node) if gpus_of_a_node else 1
    nodes = max(job.nodes.minimum, for_gpus)
    if nodes > 1:
        message = f"the script runs in the first of {nodes} pods; the others stay idle, with their GPUs"
        hint = "job steps (srun) do not run in pods yet: request one node, or an array of one-node jobs"
        place = _place_of(settings, "nodes" if job.nodes.minimum > 1 else "gpus")
        report.warning(place, "idle-pods", message, hint)


def _name(name: str, settings: Sequence[Setting], report: Report) -> None:
    """Refuse control characters: `scontrol show job` prints names raw, before fields that penstockd reads."""
    if name.isprintable() or not any(char < " " or char == _DELETE for char in name):
        return
    message = "the job's name has a control character in it; jobs that run as pods may not have one"
    report.error(_place_of(settings, "job-name"), "control-character", message, "choose a plain --job-name")


def _components(kinds: Sequence[str], report: Report) -> None:
    what = f"a heterogeneous job of {len(kinds)} components"
    if "all" in kinds[1:]:
        report.error(Place(), "hetjob", f"{what}: bridged partitions refuse it", "submit it in parts")
    else:
        report.warning(Place(), "hetjob", f"{what}; bridged partitions refuse it")


def _place_of(settings: Sequence[Setting], key: str) -> Place:
    return next((setting.place for setting in reversed(settings) if setting.option.key == key), Place())
