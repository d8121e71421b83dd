"""`penstock validate`: is this script right, and what of it will not do what it says?

Nothing is submitted and no Slurm is needed. One run takes many files, so that a repository or a whole drop
folder is checked in one go; therefore nothing is imported here that a plain check does not need.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

import click
import msgspec

from penstock import errors
from penstock.cli import report
from penstock.sbatch.diagnostics import Diagnostic

SUFFIXES = (".sh", ".bash", ".sbatch", ".slurm", ".sl", ".slrm", ".job", ".batch")
"""Names that are taken from a directory; any other file there counts when it holds a #SBATCH line."""


class Result(msgspec.Struct, frozen=True):
    """One file's verdict, the shape of `--format json`."""

    file: str
    ok: bool
    diagnostics: tuple[Diagnostic, ...]


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", help="How to print.")
@click.option("--site", "site_file", metavar="FILE", help="Check against this site too (JSON, TOML, YAML).")
@click.option("--lint", is_flag=True, help="Also say what is allowed but unwise.")
@click.option(
    "--silence", multiple=True, metavar="CODE", help="Leave out warnings of this code (repeatable)."
)
@click.option("--slurm", "release", metavar="VERSION", help="Slurm's release, such as 24.11 (default 22.05).")
@click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
@click.option("--no-summary", is_flag=True, hidden=True)
def validate(
    files: tuple[str, ...],
    style: str,
    site_file: str | None,
    lint: bool,
    silence: tuple[str, ...],
    release: str | None,
    quiet: bool,
    no_summary: bool,
) -> None:
    """Check batch scripts as sbatch would, and say everything that is wrong.

    FILE may be a directory, or - for standard input. Exit status: 0 all accepted, 1 some rejected, 2 wrong
    call.
    """
    check = report.Checker.load(site_file=site_file, release=release, lint=lint, silenced=silence)
    verdicts = [(source, *check(source)) for source in sources(files)]
    if style == "json":
        found = [
            Result(report.printable(source.shown), ok, report.clean(all_)) for source, ok, all_ in verdicts
        ]
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    else:
        report.print_text(verdicts, quiet=quiet, summary=not (quiet or no_summary))
    sys.exit(0 if all(ok for _, ok, _ in verdicts) else 1)


def sources(files: Iterable[str]) -> Iterator[report.Source]:
    """The scripts that the words of the command line name."""
    for name in files:
        if name == "-":
            yield report.Source("-", "sbatch", sys.stdin.buffer.read())
            continue
        try:
            yield _file(name)
        except IsADirectoryError:
            yield from _directory(name)


def _file(name: str) -> report.Source:
    try:
        with open(name, "rb") as script:  # noqa: PTH123 - pathlib costs 3 ms of start-up
            return report.Source(name, name.rpartition("/")[2], script.read())
    except IsADirectoryError:
        raise
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise errors.UsageError(f"cannot read {report.printable(name)}: {reason.lower()}") from error


def _directory(root: str) -> Iterator[report.Source]:
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(names):
            source = _file(f"{folder.rstrip('/')}/{name}")
            if _is_script(source):
                yield source


def _is_script(source: report.Source) -> bool:
    if b"\0" in source.data[:4096]:
        return False
    return b"\n#SBATCH" in source.data or (source.name.endswith(SUFFIXES) and source.data.startswith(b"#!"))
