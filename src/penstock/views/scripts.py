"""Finds batch scripts, and checks them as sbatch would, against the site.

Modules that a plain check does not need are imported where they are used, to save start-up time. A file that
cannot be read does not keep the others from being checked. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from penstock import errors, wellknown, wording
from penstock.model.siteview import PartitionView
from penstock.sbatch import compiler, options
from penstock.sbatch import source as reading
from penstock.sbatch.diagnostics import Diagnostic
from penstock.slurm import installed
from penstock.views import installation

UNKNOWN = "unknown-partition"
SECONDS = 2.0
"""Timeout of the query for partitions, while a user waits."""
MOST_BYTES = reading.MAX_SCRIPT_BYTES + 1
"""Read from any file: one byte too many proves that it is too large."""
HEAD_BYTES = 4096
Miss = Callable[[errors.UsageError], None]
SUFFIXES = (".sh", ".bash", ".sbatch", ".slurm", ".sl", ".slrm", ".job", ".batch")
"""Suffixes of scripts in a directory; other files there count as scripts if they have a #SBATCH line."""


class Source(msgspec.Struct, frozen=True):
    """A script: its path for messages, its job name, its content."""

    shown: str
    name: str
    data: bytes


class Result(msgspec.Struct, frozen=True):
    file: str
    ok: bool
    diagnostics: tuple[Diagnostic, ...]


class Checker(msgspec.Struct, frozen=True):
    """Everything that a check depends on except the script."""

    context: compiler.Context
    silenced: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    """Options of sbatch with which all scripts are checked."""

    @classmethod
    def load(
        cls,
        *,
        site_file: str | None,
        release: str | None,
        lint: bool = False,
        silenced: tuple[str, ...] = (),
        accepted: tuple[str, ...] = (),
    ) -> Checker:
        """Read the site, once, for these options of the command line."""
        site = installation.chosen(site_file)
        wanted = release or (site.slurm if site else installed.version()) or options.DEFAULT_RELEASE
        if not wanted.replace(".", "").isdecimal():
            raise errors.UsageError(
                f"{wanted!r} is not a release of Slurm", hint="Use a number such as 24.11 or 22.05.8."
            )
        context = compiler.Context(
            release=options.release_of(wanted),
            gres_types=site.gres_types if site else compiler.DEFAULT_CONTEXT.gres_types,
            other_gres=site is None or not site.complete,
            site=site,
            workdir=_here(),
            lint=lint,
            as_root=os.getuid() == 0,
        )
        if not accepted:
            return cls(context, silenced)
        from penstock.sbatch import submitted

        known = submitted.understood(accepted, release=context.release, gres_types=context.known_gres)
        return cls(context, silenced, known)

    def compile(self, source: Source, arguments: Sequence[str] = ()) -> compiler.Compilation:
        """Compile; for partitions that the site's view lacks Slurm is asked, as they may be newer."""
        compiled = functools.partial(
            compiler.compile_script,
            source.data,
            name=source.name,
            arguments=arguments,
            variables=os.environ,
            silenced=self.silenced,
        )
        done = compiled(context=self.context)
        site = self.context.site
        if site is None or site.complete or not any(each.code == UNKNOWN for each in done.diagnostics):
            return done
        names = live_partitions()
        if names is None:
            kept = tuple(each for each in done.diagnostics if each.code != UNKNOWN)
            return msgspec.structs.replace(done, diagnostics=kept)
        more = {name: PartitionView(whole=False) for name in names}
        known = msgspec.structs.replace(site, partitions=more | site.partitions)
        return compiled(context=msgspec.structs.replace(self.context, site=known))

    def check(self, source: Source) -> Result:
        done = self.compile(source, self.given)
        return Result(wording.printable(source.shown), done.ok, clean(done.diagnostics))


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  # importing pathlib is slow
    except OSError:  # removed
        return ""


def clean(diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Diagnostics with texts that are valid in JSON."""
    replace, printable = msgspec.structs.replace, wording.printable
    return tuple(
        replace(found, message=printable(found.message), hint=printable(found.hint)) for found in diagnostics
    )


@functools.cache
def live_partitions() -> tuple[str, ...] | None:
    """Names of all partitions, cached; None if Slurm does not answer."""
    import asyncio  # here, because it is needed for unknown partitions only

    from penstock.slurm import reader

    conf = os.environ.get(wellknown.ENV_SLURM_CONF, "")
    try:
        return asyncio.run(reader.SlurmReader(conf).partition_names(within=SECONDS)) or None
    except errors.SlurmError:
        return None


def sources(files: Iterable[str], miss: Miss) -> Iterator[Source]:
    """The scripts named on the command line; `miss` is called for each that cannot be read."""
    for name in files:
        try:
            yield script(name)
        except IsADirectoryError:
            yield from _directory(name, miss)
        except errors.UsageError as error:
            miss(error)


def script(name: str) -> Source:
    """The file, or standard input for -, up to the size that sbatch accepts."""
    with _reading(name):
        if name == "-":
            if sys.stdin is None:
                raise ValueError("standard input is closed")
            return Source("-", "sbatch", sys.stdin.buffer.read(MOST_BYTES))
        with open(name, "rb") as file:  # noqa: PTH123 - pathlib costs 3 ms of start-up
            return Source(name, name.rpartition("/")[2], file.read(MOST_BYTES))


def _directory(root: str, miss: Miss) -> Iterator[Source]:
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


def _script_of_folder(path: str, name: str) -> Source | None:
    """None if the file is not a script. Special files are not opened, since a pipe would block, and of binary
    files only the head is read.
    """
    with _reading(path):
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - as above
            return None
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            head = file.read(HEAD_BYTES)
            if b"\0" in head:
                return None
            data = head + file.read(MOST_BYTES - len(head))
    named = name.endswith(SUFFIXES) and data.startswith(b"#!")
    return Source(path, name, data) if named or b"\n#SBATCH" in data else None


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    """Raise UsageError if the file cannot be read, but IsADirectoryError unchanged."""
    try:
        yield
    except IsADirectoryError:
        raise
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: Exception) -> errors.UsageError:
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return errors.UsageError(f"cannot read {wording.printable(name)}: {reason.lower()}")
