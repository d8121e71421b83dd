"""`python -m penstock.devcluster`: a dev cluster in the foreground, on 127.0.0.1 only."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import resource
import sys
from pathlib import Path
from typing import IO

import click

from penstock import errors
from penstock.devcluster import auth, nodes, server

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Logs, volumes and pids.",
)
@click.option("--port", type=click.IntRange(1, 65535), required=True)
@click.option("--tls-cert", type=_FILE, help="PEM; without it the server speaks plain HTTP.")
@click.option("--tls-key", type=_FILE)
@click.option("--tokens", type=_FILE, required=True, help="Lines token,user,group; group is admin or viewer.")
@click.option(
    "--nodes",
    "nodes_file",
    type=_FILE,
    required=True,
    help="JSON list of name, cpus, memory_mb, gpus, labels.",
)
@click.option(
    "--backoff", type=float, default=10.0, show_default=True, help="First delay of a crash loop, in seconds."
)
def command(
    data_dir: Path,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    tokens: Path,
    nodes_file: Path,
    backoff: float,
) -> None:
    """Serve a Kubernetes API whose pods are processes of this machine. For demos and tests only."""
    if (tls_cert is None) != (tls_key is None):
        raise errors.UsageError("--tls-cert and --tls-key belong together")
    _raise_file_limit()
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = _lock(data_dir)
    settings = server.Settings(
        data_dir.resolve(),
        port,
        auth.read_tokens(tokens),
        nodes.read_nodes(nodes_file),
        tls_cert,
        tls_key,
        backoff,
    )
    with lock:
        asyncio.run(server.serve(settings))


def _lock(data_dir: Path) -> IO[str]:
    """Two clusters in one directory would end each other's pods."""
    lock = (data_dir / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise errors.UsageError(
            f"another dev cluster runs in {data_dir}", hint="choose another --data-dir"
        ) from error
    return lock


def _raise_file_limit() -> None:
    """A running pod costs three file descriptors."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        command(prog_name="python -m penstock.devcluster")
    except errors.PenstockError as error:
        click.echo(f"devcluster: {error.message}", err=True)
        if error.hint:
            click.echo(f"  {error.hint}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
