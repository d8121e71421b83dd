"""Collects outputs/: the content of $PENSTOCK_OUTPUT_DIR is moved, matches of #K8S_OUTPUTS are copied.

The job's output folder is moved, because nobody else expects it to stay. Files in the working directory stay
there for their owner and are copied; large ones are cloned or linked. Runs as the user, and can be repeated
after any interruption: existing copies are recognised.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from penstock import wellknown
from penstock.results import checksums, filecopy, globs, protected, settings, summary

MOST_NOTES = 20
_FILE_ERRORS = (
    errno.EPERM, errno.EACCES, errno.ENOENT, errno.EEXIST, errno.ENOTDIR,
    errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL,
)  # fmt: skip
"""Errors of one file or its name, not of the storage: a retry would not help."""


@dataclasses.dataclass
class Notes:
    """Notes for the owner, limited in number; file names in them may be invalid UTF-8."""

    lines: list[str] = dataclasses.field(default_factory=list)
    more: int = 0
    general: list[str] = dataclasses.field(default_factory=list)

    def add(self, text: str) -> None:
        """A note on one file; dropped beyond MOST_NOTES."""
        if len(self.lines) < MOST_NOTES:
            self.lines.append(_as_text(text))
        else:
            self.more += 1

    def add_general(self, text: str) -> None:
        """A note on all results; never dropped."""
        self.general.append(_as_text(text))

    def all(self) -> tuple[str, ...]:
        more = [f"and {self.more} more notes on single files"] if self.more else []
        return (*self.general, *self.lines, *more)


def _as_text(text: str) -> str:
    return text.encode(errors="surrogateescape").decode(errors="replace")


def take_folder(source: Path, target: Path, notes: Notes) -> bool:
    """Move the job's output folder to `target`; returns whether the agent copied all #K8S_OUTPUTS.

    The agent's mark is moved beside the folder, for later tries.
    """
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(source.lstat().st_mode):
            _move_folder(source, target, notes)
        else:  # a link or a file that the script has put in its place: kept as it is, never followed
            target.mkdir(exist_ok=True)
            source.rename(free_name(target / "PENSTOCK_OUTPUT_DIR", notes))
    mark = target.parent / wellknown.OUTPUTS_COPIED
    if target.is_dir() and not target.is_symlink():
        with contextlib.suppress(FileNotFoundError), protected.opened(target):
            (target / wellknown.OUTPUTS_COPIED).rename(mark)
        target.chmod(0o555 if protected.is_closed(target) else 0o755)
    return mark.exists()


def _move_folder(source: Path, target: Path, notes: Notes) -> None:
    try:
        protected.move(source, target)
    except OSError as error:
        if not target.is_dir() or isinstance(error, PermissionError):
            raise
        _move_into(source, target, notes)


def _move_into(source: Path, target: Path, notes: Notes) -> None:
    """Merge: entry by entry, under a new name if the name is taken."""
    with protected.opened(source), protected.opened(target):
        for entry in sorted(source.iterdir()):
            protected.move(entry, free_name(target / entry.name, notes))
    source.rmdir()


@dataclasses.dataclass
class Finder:
    workdir: Path
    target: Path
    limits: settings.Limits
    notes: Notes
    avoid: Path
    """The results folder, which is not collected into itself."""
    files: int = 0
    bytes: int = 0
    left_out: int = 0
    met_results: bool = False
    seen: set[str] = dataclasses.field(default_factory=set)
    """A file may match several patterns, or `**` at several levels."""

    def collect(self, pattern: str) -> None:
        found = False
        for name in globs.matches(str(self.workdir), pattern):
            found = True
            for file in self._files(name):
                if file not in self.seen:
                    self.seen.add(file)
                    self._take(file)
        if not found:
            self.notes.add(f"#K8S_OUTPUTS={pattern}: no match")

    def _files(self, name: str) -> Iterator[str]:
        """The file itself, or all files of a folder, without links."""
        path = self.workdir / name
        try:
            if path.is_symlink():
                self.notes.add(f"{name}: symbolic link, not followed")
            elif self._is_results(path):
                if not self.met_results:
                    self.notes.add(f"{name}: in the results folder, not collected")
                self.met_results = True
            elif path.is_dir():
                for entry in sorted(path.iterdir()):
                    yield from self._files(f"{name}/{entry.name}")
            else:
                yield name
        except OSError as error:
            self._note(name, error)

    def _is_results(self, path: Path) -> bool:
        """Unless the job itself works in a results folder, and so means the files there."""
        return self.avoid in (path, *path.parents) and self.avoid not in self.workdir.parents

    def _take(self, name: str) -> None:
        source = self.workdir / name
        try:
            before = source.lstat()
            if not stat.S_ISREG(before.st_mode):
                self.notes.add(f"{name}: not a regular file")
            elif self._fits(before.st_size):
                self._put(source, self.target / name)
        except filecopy.NotAFile:
            self.notes.add(f"{name}: not a regular file")
        except OSError as error:
            self._note(name, error)

    def _note(self, name: str, error: OSError) -> None:
        """Note an error of one file; an error of the storage is raised."""
        if error.errno not in _FILE_ERRORS:
            raise error
        self.notes.add(f"{name}: {error.strerror}")

    def _fits(self, size: int) -> bool:
        if self.files >= self.limits.output_files or self.bytes + size > self.limits.output_bytes:
            self.left_out += 1
            return False
        self.files += 1
        self.bytes += size
        return True

    def _put(self, source: Path, target: Path) -> None:
        protected.make_folders(target.parent)
        chosen = free_name(target, self.notes, same_as=source)
        if not filecopy.exists(chosen):
            with protected.opened(target.parent):
                filecopy.link_or_copy(source, chosen, link_from=self.limits.link_bytes)


def free_name(path: Path, notes: Notes, *, same_as: Path | None = None) -> Path:
    """The path, or with a number if that is taken; or an existing copy of `same_as`."""
    chosen, number = path, 1
    while filecopy.exists(chosen) and not (same_as and filecopy.is_same(same_as, chosen)):
        number += 1
        chosen = path.with_name(f"{path.name}.{number}")
    if chosen != path:
        notes.add(f"{path.name}: this name was taken; saved as {chosen.name}")
    return chosen


def measure(folder: Path, patterns: tuple[str, ...]) -> summary.Outputs:
    if not folder.is_dir():
        return summary.Outputs(patterns=patterns)
    sizes = [(folder / os.fsdecode(name)).lstat().st_size for name in checksums.files(folder)]
    return summary.Outputs(patterns=patterns, files=len(sizes), bytes=sum(sizes))


def without_checksum(folder: Path) -> Iterator[str]:
    """Notes on entries without checksum: links, special files, files that their owner cannot read."""
    for within, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(within, name)
            shown, mode = path.relative_to(folder.parent), path.lstat().st_mode
            if stat.S_ISLNK(mode):
                yield f"{shown}: symbolic link, kept, without checksum"
            elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                yield f"{shown}: not a regular file, without checksum"
            elif not _make_readable(path, mode):
                yield f"{shown}: cannot be read, without checksum"


def _make_readable(path: Path, mode: int) -> bool:
    """Let the owner read it if necessary; returns whether it is readable."""
    wanted = os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)
    if not os.access(path, wanted):
        with contextlib.suppress(PermissionError):
            path.chmod(stat.S_IMODE(mode) | (0o700 if stat.S_ISDIR(mode) else 0o400))
    return os.access(path, wanted)
