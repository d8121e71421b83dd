"""What `penstock validate` does, whoever read its words: find the scripts, check them, print what was found.

One run takes many files, so that a repository or a whole drop folder is checked in one go; therefore nothing
is imported here that a plain check does not need.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

import msgspec

from penstock import errors
from penstock.cli import report
from penstock.sbatch.diagnostics import Diagnostic

STYLES = ("text", "json")
SUFFIXES = (".sh", ".bash", ".sbatch", ".slurm", ".sl", ".slrm", ".job", ".batch")
"""Names that are taken from a directory; any other file there counts when it holds a #SBATCH line."""


class Request(msgspec.Struct, frozen=True):
    """The words of one call."""

    files: tuple[str, ...]
    style: str = "text"
    site_file: str | None = None
    lint: bool = False
    silence: tuple[str, ...] = ()
    release: str | None = None
    quiet: bool = False
    no_summary: bool = False


class Result(msgspec.Struct, frozen=True):
    """One file's verdict, the shape of `--format json`."""

    file: str
    ok: bool
    diagnostics: tuple[Diagnostic, ...]


def run(request: Request) -> int:
    """Check and print; 0 when all are accepted, 1 when any is rejected."""
    check = report.Checker.load(
        site_file=request.site_file, release=request.release, lint=request.lint, silenced=request.silence
    )
    verdicts = [(source, *check(source)) for source in sources(request.files)]
    if request.style == "json":
        found = [
            Result(report.printable(source.shown), ok, report.clean(all_)) for source, ok, all_ in verdicts
        ]
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    else:
        report.print_text(verdicts, quiet=request.quiet, summary=not (request.quiet or request.no_summary))
    return 0 if all(ok for _, ok, _ in verdicts) else 1


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
