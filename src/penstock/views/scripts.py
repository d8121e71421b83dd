"""Batch scripts: found, and checked as sbatch would against the site that is meant.

One run takes many files, so that a repository or a whole drop folder is checked in one go; therefore nothing
is imported here that a plain check does not need, and one file that cannot be read does not keep the others
from being checked. Everything here blocks.
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
"""How long Slurm is asked for its partitions: as long as a person waits gladly."""
MOST_BYTES = reading.MAX_SCRIPT_BYTES + 1
"""No more is read of any file: one byte too many is enough to know that it is too large."""
HEAD_BYTES = 4096
Miss = Callable[[errors.UsageError], None]
SUFFIXES = (".sh", ".bash", ".sbatch", ".slurm", ".sl", ".slrm", ".job", ".batch")
"""Names that are taken from a directory; any other file there counts when it holds a #SBATCH line."""


class Source(msgspec.Struct, frozen=True):
    """A script to check: how it is shown, what the job would be called, its bytes."""

    shown: str
    name: str
    data: bytes


class Result(msgspec.Struct, frozen=True):
    """One file's verdict, the shape of `--format json`."""

    file: str
    ok: bool
    diagnostics: tuple[Diagnostic, ...]


class Checker(msgspec.Struct, frozen=True):
    """Everything a check depends on but the script itself."""

    context: compiler.Context
    silenced: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    """Options of the command line that all scripts are checked with."""

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
        """What the command line's options ask for; the site is read here, once."""
        site = installation.chosen(site_file)
        wanted = release or (site.slurm if site else installed.version()) or options.DEFAULT_RELEASE
        if not wanted.replace(".", "").isdecimal():
            raise errors.UsageError(f"{wanted!r} is no release of Slurm", hint="as in 24.11 or 22.05.8")
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
        """Slurm is asked for partitions that the site's view does not name: they may have come since."""
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
        """One script's verdict."""
        done = self.compile(source, self.given)
        return Result(wording.printable(source.shown), done.ok, clean(done.diagnostics))


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  # pathlib costs every call
    except OSError:  # it was removed
        return ""


def clean(diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The same findings with texts that JSON can carry."""
    replace, printable = msgspec.structs.replace, wording.printable
    return tuple(
        replace(found, message=printable(found.message), hint=printable(found.hint)) for found in diagnostics
    )


@functools.cache
def live_partitions() -> tuple[str, ...] | None:
    """Names of all partitions, asked for once; None when Slurm does not answer."""
    import asyncio  # here, because Slurm is asked of unknown names only

    from penstock.slurm import reader

    conf = os.environ.get(wellknown.ENV_SLURM_CONF, "")
    try:
        return asyncio.run(reader.SlurmReader(conf).partition_names(within=SECONDS)) or None
    except errors.SlurmError:
        return None


def sources(files: Iterable[str], miss: Miss) -> Iterator[Source]:
    """The scripts that the words of the command line name; `miss` hears of each that cannot be read."""
    for name in files:
        try:
            yield script(name)
        except IsADirectoryError:
            yield from _directory(name, miss)
        except errors.UsageError as error:
            miss(error)


def script(name: str) -> Source:
    """The one file of that name, or standard input; more of it than sbatch would take is not read."""
    with _in_words(name):
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
    return Source(path, name, data) if named or b"\n#SBATCH" in data else None


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
    return errors.UsageError(f"cannot read {wording.printable(name)}: {reason.lower()}")
