"""`python -m penstock_lab.devcluster`: a dev cluster in the foreground, on 127.0.0.1 only."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import resource
import sys
from pathlib import Path

import click

from penstock import errors
from penstock_lab.devcluster import agent, apirequests, app, nodeobjects

_FILE = click.Path(path_type=Path, dir_okay=False)
_DIRECTORY = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.option("--data-dir", type=_DIRECTORY, required=True, help="Logs and volumes.")
@click.option("--port", type=click.IntRange(1, 65535), required=True)
@click.option("--tls-cert", type=_FILE, help="PEM; without it the server speaks plain HTTP.")
@click.option("--tls-key", type=_FILE)
@click.option("--tokens", type=_FILE, required=True, help="Lines token,user,group; group is admin or viewer.")
@click.option(
    "--nodes", "specs", type=_FILE, required=True, help="JSON: name, cpus, memory_mb, gpus, labels."
)
@click.option("--backoff", default=agent.BACKOFF, show_default=True, help="First delay of a crash loop.")
def command(
    data_dir: Path,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    tokens: Path,
    specs: Path,
    backoff: float,
) -> None:
    """Serve a Kubernetes API whose pods are processes of this machine. For demos and tests only."""
    if (tls_cert is None) != (tls_key is None):
        raise errors.UsageError("--tls-cert and --tls-key belong together")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a running pod costs three
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (data_dir / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # two clusters would kill each other's pods
        except OSError as error:
            why = f"another dev cluster runs in {data_dir}"
            raise errors.UsageError(why, hint="choose another --data-dir") from error
        known, place = apirequests.read_tokens(tokens), data_dir.resolve()
        settings = app.Settings(place, port, known, nodeobjects.read_nodes(specs), tls_cert, tls_key, backoff)
        asyncio.run(app.serve(settings))


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        command(prog_name="python -m penstock_lab.devcluster")
    except errors.PenstockError as error:
        click.echo(f"devcluster: {error.message}" + (f"\n  {error.hint}" if error.hint else ""), err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
