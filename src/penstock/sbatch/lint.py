"""Warnings about what is allowed but unwise."""

from __future__ import annotations

from penstock.model.jobspec import UNLIMITED, JobSpec
from penstock.model.siteview import SiteView
from penstock.sbatch import footprint
from penstock.sbatch.diagnostics import Place, Report
from penstock.sbatch.sitecheck import place_of

FAR_OVER = 2
"""A warning is given for memory above this many times the share of the CPUs."""


def check(job: JobSpec, site: SiteView | None, report: Report) -> None:
    share = footprint.even_share(job)
    if job.time_limit is None:
        hint = "write --time=HH:MM:SS: short jobs start earlier by backfill"
        report.warning(Place(1, 1), "no-time-limit", "no --time: the partition's default applies", hint)
    elif job.time_limit == UNLIMITED:
        hint = "give the time that the job really needs"
        report.warning(place_of(job, "time_limit"), "unlimited-time", "a job without a time limit", hint)
    if job.sharing == "exclusive" and share.gpus == 1:
        hint = "leave --exclusive out, or use all GPUs of the node"
        message = "--exclusive takes the whole node for one GPU"
        report.warning(place_of(job, "sharing"), "exclusive-one-gpu", message, hint)
    _memory(job, share, site, report)
    if job.array is not None and "%a" not in job.output and "%A" not in job.output:
        message = "all tasks of the array write the same output file"
        report.warning(place_of(job, "output"), "array-shares-output", message, "add %A_%a to --output")


def _memory(job: JobSpec, share: footprint.Footprint, site: SiteView | None, report: Report) -> None:
    if site is None or not site.nodes or not share.memory_mib or job.sharing == "exclusive":
        return
    fair = max(kind.memory_mib * share.cpus // max(kind.cpus, 1) for kind in site.nodes)
    if share.memory_mib > FAR_OVER * fair:
        message = f"{share.memory_mib} MiB a node is far above the share of {share.cpus} CPUs, {fair} MiB"
        hint = "other jobs cannot use CPUs without memory; request less memory, or more CPUs"
        report.warning(place_of(job, "memory"), "memory-over-share", message, hint)
