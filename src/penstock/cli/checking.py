"""What `penstock validate` does, whoever read its words: find the scripts, check them, print what was found.

One run takes many files, so that a repository or a whole drop folder is checked in one go; therefore nothing
is imported here that a plain check does not need, and one file that cannot be read does not keep the others
from being checked.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator

import msgspec

from penstock import errors
from penstock.cli import report
from penstock.sbatch import source as reading
from penstock.sbatch.diagnostics import Diagnostic

STYLES = ("text", "json")
MOST_BYTES = reading.MAX_SCRIPT_BYTES + 1
"""No more is read of any file: one byte too many is enough to know that it is too large."""
HEAD_BYTES = 4096
Miss = Callable[[errors.UsageError], None]
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
    accepted: tuple[str, ...] = ()
    """Words of a command line that sbatch has accepted."""


class Result(msgspec.Struct, frozen=True):
    """One file's verdict, the shape of `--format json`."""

    file: str
    ok: bool
    diagnostics: tuple[Diagnostic, ...]


def run(request: Request) -> int:
    """Check and print; 0 when all are accepted, 1 when any is rejected, 2 when any could not be read."""
    check = report.Checker.load(
        site_file=request.site_file,
        release=request.release,
        lint=request.lint,
        silenced=request.silence,
        accepted=request.accepted,
    )
    unread: list[errors.UsageError] = []

    def miss(error: errors.UsageError) -> None:
        unread.append(error)
        report.complain(error.message)

    verdicts = [(source, *check(source)) for source in sources(request.files, miss)]
    if request.style == "json":
        found = [
            Result(report.printable(source.shown), ok, report.clean(all_)) for source, ok, all_ in verdicts
        ]
        report.emit(msgspec.json.encode(found) + b"\n")
    else:
        summary = not (request.quiet or request.no_summary) and (bool(verdicts) or not unread)
        report.print_text(verdicts, quiet=request.quiet, summary=summary)
    return 2 if unread else 0 if all(ok for _, ok, _ in verdicts) else 1


def sources(files: Iterable[str], miss: Miss) -> Iterator[report.Source]:
    """The scripts that the words of the command line name; `miss` hears of each that cannot be read."""
    for name in files:
        try:
            yield script(name)
        except IsADirectoryError:
            yield from _directory(name, miss)
        except errors.UsageError as error:
            miss(error)


def script(name: str) -> report.Source:
    """The one file of that name, or standard input; more of it than sbatch would take is not read."""
    with _in_words(name):
        if name == "-":
            if sys.stdin is None:
                raise ValueError("standard input is closed")
            return report.Source("-", "sbatch", sys.stdin.buffer.read(MOST_BYTES))
        with open(name, "rb") as file:  # noqa: PTH123 - pathlib costs 3 ms of start-up
            return report.Source(name, name.rpartition("/")[2], file.read(MOST_BYTES))


def _directory(root: str, miss: Miss) -> Iterator[report.Source]:
    def closed(error: OSError) -> None:
        miss(_unreadable(os.fsdecode(error.filename or root), error))

    for folder, inner, names in os.walk(root, onerror=closed):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(names):
            try:
                source = _script_of_folder(f"{folder.rstrip('/')}/{name}", name)
            except errors.UsageError as error:
                miss(error)
                continue
            if source is not None:
                yield source


def _script_of_folder(path: str, name: str) -> report.Source | None:
    """A file that is a script. Pipes, sockets and devices are none, and opening a pipe would wait for its
    writer; of data no more is read than it takes to see that it is data.
    """
    with _in_words(path):
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - as above
            return None
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            head = file.read(HEAD_BYTES)
            if b"\0" in head:
                return None
            data = head + file.read(MOST_BYTES - len(head))
    named = name.endswith(SUFFIXES) and data.startswith(b"#!")
    return report.Source(path, name, data) if named or b"\n#SBATCH" in data else None


@contextlib.contextmanager
def _in_words(name: str) -> Iterator[None]:
    """What keeps a file from being read, as an error of ours; that it is a folder is the caller's affair."""
    try:
        yield
    except IsADirectoryError:
        raise
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: Exception) -> errors.UsageError:
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return errors.UsageError(f"cannot read {report.printable(name)}: {reason.lower()}")
