"""`penstock daemon`, `intake` and `collector`, in the foreground, for a service manager."""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path

import click

from penstock import errors, pings
from penstock.hooks import wire

_config = functools.partial(click.option, "--config", "path", type=click.Path(path_type=Path), required=True)


@click.command()
@_config(help="penstockd's settings (JSON).")
@click.option("--user", help="Drop root and run as this user.")
@click.option("--ping", is_flag=True, help="Only query the running penstockd: exit code 0 if it is healthy.")
def daemon(path: Path, user: str | None, ping: bool) -> None:
    """Run penstockd, the process between Slurm and Kubernetes.

    \b
    Example:
      penstock daemon --config /etc/penstock/penstockd.json --user slurm
      penstock daemon --config /etc/penstock/penstockd.json --ping
    """
    if ping:
        sys.exit(_ping(path))
    from penstock import presence
    from penstock.daemon import penstockd, settings

    found, fingerprint = settings.load(path), presence.fingerprint(path)
    if user:
        if os.geteuid() == 0:
            penstockd.give_folders(found.folders, user)
        penstockd.drop_privileges(user)
    penstockd.start(found, fingerprint=fingerprint)


def _ping(path: Path) -> int:
    """For frequent probes, so nothing of the daemon is imported."""
    try:
        name = str(json.loads(path.read_bytes())["socket"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.UsageError(f"cannot read the socket path from {path}: {error}") from error
    try:
        answer, _ = pings.ping(name)
    except (OSError, wire.WireError) as error:
        click.echo(f"penstockd does not answer on {name}: {error}", err=True)
        return 1
    click.echo(answer or "no answer")
    return 0 if answer == pings.WELL else 1


@click.command()
@_config(help="The intake's settings (JSON).")
@click.option(
    "--adopt", default="", metavar="INSTANCE", help="Take over the files of an intake that is gone for good."
)
def intake(path: Path, adopt: str) -> None:
    """Submit the files that users drop on the NAS, each once, as its owner.

    Requires root, but no access to Kubernetes. Exit status: 0 stopped by a signal, 2 invalid settings or
    another intake uses the same state, 1 any other error.

    \b
    Example:
      penstock intake --config /etc/penstock/intake.json
    """
    from penstock import presence
    from penstock.daemon import logformat
    from penstock.intake import service, settings

    found, fingerprint = settings.load(path), presence.fingerprint(path)
    logformat.configure(level=found.log_level, as_json=found.log_format == "json")
    service.start(found, adopt=adopt, fingerprint=fingerprint)


@click.command()
@_config(help="The collector's settings (JSON).")
def collector(path: Path) -> None:
    """Write the results of ended jobs, as their owners.

    Requires root, to act as each job's owner, but no access to Kubernetes.

    \b
    Example:
      penstock collector --config /etc/penstock/collector.json
    """
    from penstock import presence
    from penstock.daemon import logformat
    from penstock.results import service, settings

    found, fingerprint = settings.load(path), presence.fingerprint(path)
    logformat.configure(level=found.log_level, as_json=found.log_format == "json")
    service.Collector(found, fingerprint=fingerprint).run()
