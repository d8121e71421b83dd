"""outputs/: what the job left in $PENSTOCK_OUTPUT_DIR, moved, and what #K8S_OUTPUTS patterns name, copied.

The job's own folder is moved, for nobody else was promised to find it where it was. Files of the working
directory stay there for their owner and are copied, or from a size on cloned or linked. Runs as the user, and
may be run again after any interruption: what is there already is recognised.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from penstock import wellknown
from penstock.results import checksums, copying, globbing, settings, summary

MOST_NOTES = 20


@dataclasses.dataclass
class Notes:
    """What the owner should know, within reason."""

    lines: list[str] = dataclasses.field(default_factory=list)
    more: int = 0

    def add(self, text: str) -> None:
        """Names in it need not be text."""
        if len(self.lines) < MOST_NOTES:
            self.lines.append(text.encode(errors="surrogateescape").decode(errors="replace"))
        else:
            self.more += 1

    def all(self) -> tuple[str, ...]:
        return (*self.lines, f"and {self.more} more of these") if self.more else tuple(self.lines)


def take_folder(source: Path, target: Path, notes: Notes) -> bool:
    """Move the job's own output folder to `target`; whether the agent copied all it was asked to.

    Its mark goes beside the folder, where it is found again if we have to come back.
    """
    with contextlib.suppress(FileNotFoundError):
        try:
            source.rename(target)
        except OSError as error:
            if not target.is_dir() or isinstance(error, PermissionError):
                raise
            _move_into(source, target, notes)
    mark = target.parent / wellknown.OUTPUTS_COPIED
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        (target / wellknown.OUTPUTS_COPIED).rename(mark)
    if target.is_dir():
        target.chmod(0o755)
    return mark.exists()


def _move_into(source: Path, target: Path, notes: Notes) -> None:
    """Both are there: entry by entry, beside what has the same name."""
    for entry in sorted(source.iterdir()):
        entry.rename(free_name(target / entry.name, notes))
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

    def collect(self, pattern: str) -> None:
        """Everything that fits one pattern."""
        found = False
        for way in globbing.matches(str(self.workdir), pattern):
            found = True
            try:
                for file in self._within(way):
                    self._take(file)
            except (PermissionError, FileNotFoundError) as error:
                self.notes.add(f"{way}: {error.strerror}")
        if not found:
            self.notes.add(f"#K8S_OUTPUTS={pattern}: nothing there")

    def _within(self, way: str) -> Iterator[str]:
        """The file itself, or all files of a folder; links are named and left alone."""
        path = self.workdir / way
        if path.is_symlink():
            self.notes.add(f"{way}: a link, not followed")
        elif path == self.avoid:
            return
        elif path.is_dir():
            for entry in sorted(path.iterdir()):
                yield from self._within(f"{way}/{entry.name}")
        else:
            yield way

    def _take(self, way: str) -> None:
        source = self.workdir / way
        try:
            before = source.lstat()
            if not stat.S_ISREG(before.st_mode):
                self.notes.add(f"{way}: no regular file")
            elif self._fits(before.st_size):
                self._put(source, self.target / way, before)
        except (PermissionError, FileNotFoundError, copying.NotAFile) as error:
            self.notes.add(f"{way}: {getattr(error, 'strerror', None) or 'no regular file'}")

    def _fits(self, size: int) -> bool:
        if self.files >= self.limits.output_files or self.bytes + size > self.limits.output_bytes:
            self.left_out += 1
            return False
        self.files += 1
        self.bytes += size
        return True

    def _put(self, source: Path, target: Path, before: os.stat_result) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if copying.is_same(before, target):
            return
        chosen = free_name(target, self.notes, same_as=before)
        if not copying.is_same(before, chosen):
            copying.link_or_copy(source, chosen, link_from=self.limits.link_bytes)


def free_name(path: Path, notes: Notes, *, same_as: os.stat_result | None = None) -> Path:
    """The path, or one beside it when something else is there; or what an interrupted run put there."""
    chosen, number = path, 1
    while os.path.lexists(chosen) and not (same_as and copying.is_same(same_as, chosen)):
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
