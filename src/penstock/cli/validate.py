"""`penstock validate`: is this script right, and what of it will not do what it says?

Nothing is submitted and no Slurm is needed. One run takes many files, so that a repository or a whole
drop folder is checked in one go; therefore nothing is imported here that a plain check does not need.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec

from penstock import errors
from penstock.cli import report
from penstock.sbatch.diagnostics import Diagnostic

SUFFIXES = (".sh", ".bash", ".sbatch", ".slurm", ".sl", ".slrm", ".job", ".batch", ".pbs")
"""Names that are taken from a directory; any other file there counts when it holds a #SBATCH line."""


class Result(msgspec.Struct, frozen=True):
    """One file's verdict, the shape of `--format json`."""

    file: str
    ok: bool
    diagnostics: tuple[Diagnostic, ...]


@click.command(context_settings={"show_default": True})
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", help="How to print.")
@click.option("--site", "site_file", metavar="FILE", help="Check against this site too (JSON, TOML or YAML).")
@click.option("--lint", is_flag=True, help="Also say what is allowed but unwise.")
@click.option(
    "--silence", multiple=True, metavar="CODE", help="Leave out warnings with this code; may be repeated."
)
@click.option(
    "--slurm", "release", metavar="VERSION", help="Slurm's release, for instance 24.11; 22.05 when unset."
)
@click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
def validate(
    files: tuple[str, ...],
    style: str,
    site_file: str | None,
    lint: bool,
    silence: tuple[str, ...],
    release: str | None,
    quiet: bool,
) -> None:
    """Check batch scripts as sbatch would, and say everything that is wrong.

    FILE may be a directory, or - for standard input. Exit status: 0 all accepted, 1 some
    rejected, 2 wrong call.
    """
    check = report.Checker.load(site_file=site_file, release=release, lint=lint, silenced=silence)
    verdicts = [(source, *check(source.name, source.data)) for source in _sources(files)]
    if style == "json":
        found = [Result(source.shown, ok, diagnostics) for source, ok, diagnostics in verdicts]
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    else:
        report.print_text(verdicts, quiet=quiet)
    sys.exit(0 if all(ok for _, ok, _ in verdicts) else 1)


def _sources(files: Iterable[str]) -> Iterator[report.Source]:
    for name in files:
        if name == "-":
            yield report.Source("-", "sbatch", sys.stdin.buffer.read())
        elif Path(name).is_dir():
            yield from _directory(Path(name))
        else:
            yield _file(Path(name), shown=name)


def _file(path: Path, *, shown: str) -> report.Source:
    try:
        return report.Source(shown, path.name, path.read_bytes())
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise errors.UsageError(f"cannot read {shown}: {reason.lower()}") from error


def _directory(root: Path) -> Iterator[report.Source]:
    for path in sorted(path for path in root.rglob("*") if path.is_file() and "/." not in str(path)):
        source = _file(path, shown=str(path))
        if (path.suffix in SUFFIXES and source.data.startswith(b"#!")) or b"\n#SBATCH" in source.data:
            yield source
