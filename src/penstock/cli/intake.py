"""`penstock intake`: the drop folder's clerk in the foreground, as a service manager wants it."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--config", "path", type=click.Path(path_type=Path), required=True, help="The intake's settings (JSON)."
)
@click.option(
    "--adopt", default="", metavar="INSTANCE", help="Take over the files of an intake that is gone for good."
)
def intake(path: Path, adopt: str) -> None:
    """Submit the files that users drop on the NAS, each once, as its owner.

    Needs root, and no access to Kubernetes. Exit status: 0 stopped by a signal, 2 wrong settings or another
    intake runs with the same state, 1 anything else.

    \b
    Example:
      penstock intake --config /etc/penstock/intake.json
    """
    from penstock import presence
    from penstock.daemon import logs
    from penstock.intake import running, settings

    site, fingerprint = settings.load(path), presence.fingerprint(path)
    logs.configure(level=site.log_level, as_json=site.log_format == "json")
    running.start(site, adopt=adopt, fingerprint=fingerprint)
