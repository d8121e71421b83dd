"""`penstock daemon`: penstockd in the foreground, as a service manager wants it."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--config", "path", type=click.Path(path_type=Path), required=True, help="penstockd's settings (JSON)."
)
@click.option("--user", help="Give up root and run as this user.")
def daemon(path: Path, user: str | None) -> None:
    """Run penstockd, the process between Slurm and Kubernetes.

    \b
    Example:
      penstock daemon --config /etc/penstock/penstockd.json --user slurm
    """
    from penstock.daemon import running, settings

    if user:
        running.drop_privileges(user)
    running.start(settings.load(path))
