"""`penstock collector`: writes results in the foreground, as a service manager wants it."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    help="The collector's settings (JSON).",
)
def collector(path: Path) -> None:
    """Write the results of ended jobs, as their owners.

    Runs as root, because it becomes each job's owner in turn, and never talks to Kubernetes.

    \b
    Example:
      penstock collector --config /etc/penstock/collector.json
    """
    from penstock import presence
    from penstock.daemon import logs
    from penstock.results import running, settings

    chosen, fingerprint = settings.load(path), presence.fingerprint(path)
    logs.configure(level=chosen.log_level, as_json=chosen.log_format == "json")
    running.Collector(chosen, fingerprint=fingerprint).run()
