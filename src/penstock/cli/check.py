"""`penstock check`: verifies the invariants on the live site, once or continuously."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time as unix_time
from collections.abc import AsyncIterator
from pathlib import Path

import click
import msgspec

from penstock import clock, errors, wellknown
from penstock.audit import checkruns, collect, confirmed, reports
from penstock.kube import client, incluster
from penstock.nas import atomic
from penstock.views import installation

CLEAN, BROKEN, UNKNOWN = 0, 1, 3


@click.command()
@click.option("--watch", is_flag=True, help="Check repeatedly and report changes.")
@click.option("--interval", default=15.0, show_default=True, help="Seconds between checks with --watch.")
@click.option(
    "--patience",
    default=confirmed.PATIENCE["I2"],
    show_default=True,
    help="Seconds that an orphan, or a job without pods, may exist before it counts.",
)
@click.option(
    "--metrics-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --watch: write metrics to this file, for Prometheus' textfile collector.",
)
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", show_default=True)
def check(watch: bool, interval: float, patience: float, metrics_file: Path | None, style: str) -> None:
    """Check on the live site that Slurm and Kubernetes agree.

    Reads Slurm, Kubernetes and penstockd, and prints every violated invariant with its evidence: double
    booking (I1), orphans, and jobs that are RUNNING in Slurm without launcher and pod (I2), records that
    differ from the container's (I5). A violation counts only if it persists across two snapshots.

    KUBECONFIG must be allowed to list nodes, pods and Secrets; penstockd answers root and SlurmUser.

    \b
    Exit status: 0 no violation, 1 violations, 2 usage error, 3 unknown (a side does not answer).

    \b
    Examples:
      penstock check
      penstock check --format json
      penstock check --watch --metrics-file /var/lib/node_exporter/penstock.prom
    """
    if not watch and metrics_file:
        raise errors.UsageError("--metrics-file requires --watch", hint="Add --watch.")
    if interval <= 0 or patience < 0:
        raise errors.UsageError("--interval must be positive, and --patience not negative")
    limits = {**confirmed.PATIENCE, "I2": patience}
    work = _watch(limits, interval, metrics_file, style) if watch else _once(limits, style)
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(asyncio.run(work))


@contextlib.asynccontextmanager
async def _checker(patience: dict[str, float]) -> AsyncIterator[checkruns.Checker]:
    if not os.environ.get(wellknown.ENV_KUBECONFIG) and not incluster.is_pod():
        raise errors.UsageError(
            "KUBECONFIG is not set", hint="Set it to a kubeconfig that may list nodes, pods and Secrets."
        )
    async with client.KubeClient(incluster.of_person()) as kube:
        looker = collect.Looker(kube, installation.slurm_conf(), installation.socket())
        yield checkruns.Checker(looker.look, clock.SystemClock(), confirmed.Confirmer(patience))


async def _once(patience: dict[str, float], style: str) -> int:
    async with _checker(patience) as checker:
        report = await checker.once()
    if style == "json":
        click.echo(msgspec.json.encode(report))
    elif report.violations:
        click.echo(reports.as_text(report.violations))
    elif not report.unknown:
        click.echo("No violation: no double booking, no orphans, equal records.")
    if report.unknown:
        click.echo(f"penstock: unknown: {report.unknown}", err=True)
    return BROKEN if report.violations else UNKNOWN if report.unknown else CLEAN


async def _watch(patience: dict[str, float], interval: float, metrics: Path | None, style: str) -> int:
    unknown = ""
    async with _checker(patience) as checker:
        async for change in checker.forever(interval=interval):
            report = change.report
            if metrics:
                text = reports.as_metrics(report.violations, known=not report.unknown, at=unix_time.time())
                await asyncio.to_thread(atomic.write, metrics, text.encode(), durable=False)
            if change.appeared or change.gone or report.unknown != unknown:
                _print_change(change, style, unknown_before=unknown)
            unknown = report.unknown
    return CLEAN


def _print_change(change: checkruns.Change, style: str, *, unknown_before: str) -> None:
    if style == "json":
        click.echo(msgspec.json.encode(change))
        return
    stamp = unix_time.strftime("%Y-%m-%dT%H:%M:%S")
    for one in change.appeared:
        click.echo(f"{stamp} violation: {reports.as_text([one])}")
    for one in change.gone:
        click.echo(f"{stamp} resolved: {one.kind}: {one.subject}")
    if change.report.unknown != unknown_before:
        unknown = change.report.unknown
        click.echo(f"{stamp} unknown: {unknown}" if unknown else f"{stamp} all sides answer", err=True)
