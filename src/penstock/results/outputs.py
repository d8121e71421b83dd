"""outputs/: what the job left in $PENSTOCK_OUTPUT_DIR, moved, and what #K8S_OUTPUTS patterns name, copied.

The job's own folder is moved, for nobody else was promised to find it where it was. Files of the working
directory stay there for their owner and are copied, or from a size on cloned or linked. Runs as the user, and
may be run again after any interruption: what is there already is recognised.
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
_HERE_ALONE = (
    errno.EPERM, errno.EACCES, errno.ENOENT, errno.EEXIST, errno.ENOTDIR,
    errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL,
)  # fmt: skip
"""What says something of one file, or of its name, and not of the storage: waiting would not help."""


@dataclasses.dataclass
class Notes:
    """What the owner should know, within reason; names in it need not be text."""

    lines: list[str] = dataclasses.field(default_factory=list)
    more: int = 0
    general: list[str] = dataclasses.field(default_factory=list)

    def add(self, text: str) -> None:
        """Of one file among many."""
        if len(self.lines) < MOST_NOTES:
            self.lines.append(_as_text(text))
        else:
            self.more += 1

    def say(self, text: str) -> None:
        """Of the whole: never left out, whatever there is to say of single files."""
        self.general.append(_as_text(text))

    def all(self) -> tuple[str, ...]:
        more = [f"and {self.more} more of these"] if self.more else []
        return (*self.general, *self.lines, *more)


def _as_text(text: str) -> str:
    return text.encode(errors="surrogateescape").decode(errors="replace")


def take_folder(source: Path, target: Path, notes: Notes) -> bool:
    """Move the job's own output folder to `target`; whether the agent copied all it was asked to.

    Its mark goes beside the folder, where it is found again if we have to come back.
    """
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(source.lstat().st_mode):
            _move_folder(source, target, notes)
        else:  # a link or a file that the script has put in its place: kept as that, never followed
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
    """Both are there: entry by entry, beside what has the same name."""
    with protected.opened(source), protected.opened(target):
        for entry in sorted(source.iterdir()):
            protected.move(entry, free_name(target / entry.name, notes))
    source.rmdir()


@dataclasses.dataclass
class Finder:
    """Collects what patterns name, within the site's limits."""

    workdir: Path
    target: Path
    limits: settings.Limits
    notes: Notes
    avoid: Path
    """The results folder: never collected into itself."""
    files: int = 0
    bytes: int = 0
    left_out: int = 0
    met_results: bool = False
    seen: set[str] = dataclasses.field(default_factory=set)
    """A file that several patterns name, or `**` at several levels, is one."""

    def collect(self, pattern: str) -> None:
        """Everything that fits one pattern."""
        found = False
        for way in globs.matches(str(self.workdir), pattern):
            found = True
            for file in self._within(way):
                if file not in self.seen:
                    self.seen.add(file)
                    self._take(file)
        if not found:
            self.notes.add(f"#K8S_OUTPUTS={pattern}: nothing there")

    def _within(self, way: str) -> Iterator[str]:
        """The file itself, or all files of a folder; links are named and left alone."""
        path = self.workdir / way
        try:
            if path.is_symlink():
                self.notes.add(f"{way}: a link, not followed")
            elif self._is_results(path):
                self._note_results(way)
            elif path.is_dir():
                for entry in sorted(path.iterdir()):
                    yield from self._within(f"{way}/{entry.name}")
            else:
                yield way
        except OSError as error:
            self._note(way, error)

    def _note_results(self, way: str) -> None:
        if not self.met_results:
            self.notes.add(f"{way}: in the results folder, from which nothing is collected")
        self.met_results = True

    def _is_results(self, path: Path) -> bool:
        """Other jobs', that is; one that works in a results folder means what it names there."""
        return self.avoid in (path, *path.parents) and self.avoid not in self.workdir.parents

    def _take(self, way: str) -> None:
        source = self.workdir / way
        try:
            before = source.lstat()
            if not stat.S_ISREG(before.st_mode):
                self.notes.add(f"{way}: no regular file")
            elif self._fits(before.st_size):
                self._put(source, self.target / way)
        except filecopy.NotAFile:
            self.notes.add(f"{way}: no regular file")
        except OSError as error:
            self._note(way, error)

    def _note(self, way: str, error: OSError) -> None:
        """Of one that stays where it is; trouble with the storage is raised."""
        if error.errno not in _HERE_ALONE:
            raise error
        self.notes.add(f"{way}: {error.strerror}")

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
        if not filecopy.is_there(chosen):
            with protected.opened(target.parent):
                filecopy.link_or_copy(source, chosen, link_from=self.limits.link_bytes)


def free_name(path: Path, notes: Notes, *, same_as: Path | None = None) -> Path:
    """The path, or one beside it when something else is there; or where a copy of `same_as` is already."""
    chosen, number = path, 1
    while filecopy.is_there(chosen) and not (same_as and filecopy.is_same(same_as, chosen)):
        number += 1
        chosen = path.with_name(f"{path.name}.{number}")
    if chosen != path:
        notes.add(f"{path.name}: there were two of this name; one is {chosen.name}")
    return chosen


def measure(folder: Path, patterns: tuple[str, ...]) -> summary.Outputs:
    """How much is in the folder."""
    if not folder.is_dir():
        return summary.Outputs(patterns=patterns)
    sizes = [(folder / os.fsdecode(name)).lstat().st_size for name in checksums.files(folder)]
    return summary.Outputs(patterns=patterns, files=len(sizes), bytes=sum(sizes))


def oddities(folder: Path) -> Iterator[str]:
    """What has no checksum: links, special files, and what even its owner cannot be given to read."""
    for within, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(within, name)
            shown, mode = path.relative_to(folder.parent), path.lstat().st_mode
            if stat.S_ISLNK(mode):
                yield f"{shown}: a link, kept as it is, without checksum"
            elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                yield f"{shown}: no regular file, without checksum"
            elif not _readable(path, mode):
                yield f"{shown}: cannot be read, without checksum"


def _readable(path: Path, mode: int) -> bool:
    """Whether it is, if need be after its owner has been allowed to."""
    wanted = os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)
    if not os.access(path, wanted):
        with contextlib.suppress(PermissionError):
            path.chmod(stat.S_IMODE(mode) | (0o700 if stat.S_ISDIR(mode) else 0o400))
    return os.access(path, wanted)
