"""What `apply` remembers between calls: which files and objects are ours, and what was there before.

Everything is below one directory that only root can read, for a copy of slurmdbd.conf holds a password.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pwd
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock import errors
from penstock.nas import atomic

Manifest = dict[str, Any]


class FileState(msgspec.Struct, frozen=True):
    """A file as it is or shall be: content by the name of its copy, mode, owner."""

    digest: str
    mode: int
    uid: int
    gid: int
    link: str = ""
    """What it points to when it is a symbolic link; the rest is then of the file that it leads to."""


class FileRecord(msgspec.Struct, frozen=True):
    """A file of ours, and what was there before the first of ours."""

    ours: FileState
    original: FileState | None = None


class ObjectRecord(msgspec.Struct, frozen=True):
    """An object of ours; `existed` when somebody else had made it before."""

    manifest: Manifest
    existed: bool = False
    original: Manifest | None = None
    """What such an object said where ours says something else; None when it said the same."""


class Installed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """installed.json."""

    transaction: str = ""
    files: dict[str, FileRecord] = {}
    objects: dict[str, ObjectRecord] = {}
    """By their path in the API."""
    made: list[str] = []
    """Files that were made once and are not rendered: penstockd's kubeconfig."""


class Store:
    """The directory of the records."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.copies = directory / "copies"
        self.installed_path = directory / "installed.json"
        self.journal_path = directory / "journal.json"
        self._unsaved: dict[str, bytes] = {}

    @contextlib.contextmanager
    def locked(self, *, read_only: bool = False) -> Iterator[None]:
        """The records for us alone; made when they are not there, unless nothing may be written."""
        if read_only and not self.directory.exists():
            yield
            return
        descriptor = self._opened(make=not read_only)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise errors.InstallError(
                    "another `penstock apply` is at work", hint="Wait for it to end."
                ) from None
            try:
                yield
            finally:
                if not read_only:
                    self._remove_if_empty()
        finally:
            os.close(descriptor)

    def _opened(self, *, make: bool) -> int:
        try:
            if make:
                self._make()
            return os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise errors.InstallError(
                f"cannot use {self.directory}: {error.strerror}", hint="Installing needs root."
            ) from error

    def _make(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.copies.mkdir(mode=0o700, exist_ok=True)
        self.directory.chmod(0o700)

    def installed(self) -> Installed:
        """What is installed; nothing when nothing is."""
        try:
            return msgspec.json.decode(self.installed_path.read_bytes(), type=Installed)
        except FileNotFoundError:
            return Installed()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise errors.InstallError(f"{self.installed_path} cannot be read: {error}") from error

    def note_made(self, path: str) -> None:
        """Remember a file that uninstalling removes."""
        installed = self.installed()
        noted = msgspec.structs.replace(installed, made=sorted({*installed.made, path}))
        atomic.write(self.installed_path, msgspec.json.encode(noted), mode=0o600)

    def keep(self, content: bytes) -> str:
        """Remember the content, in memory until `save`; its name."""
        digest = hashlib.sha256(content).hexdigest()
        self._unsaved[digest] = content
        return digest

    def copy(self, digest: str) -> bytes:
        """The content of that name."""
        known = self._unsaved.get(digest)
        if known is not None:
            return known
        try:
            return (self.copies / digest).read_bytes()
        except FileNotFoundError:
            raise errors.InstallError(
                f"{self.copies / digest} is lost, and with it what a file was before",
                hint="installed.json beside it names the file; bring the copy back from a backup.",
            ) from None

    def save(self, needed: Iterable[str], recorded: Iterable[str]) -> None:
        """Put contents on the disk: those that are needed to go on or back, and those of records, of which
        one may have been lost before.
        """
        self._make()
        for digest in (*needed, *(each for each in recorded if each in self._unsaved)):
            path = self.copies / digest
            if not path.exists():
                atomic.write(path, self.copy(digest), mode=0o600)

    def _remove_if_empty(self) -> None:
        """Leave nothing behind while nothing is installed."""
        if self.installed_path.exists() or self.journal_path.exists():
            return
        for path in self.copies.iterdir():
            path.unlink()
        with contextlib.suppress(OSError):
            self.copies.rmdir()
            self.directory.rmdir()


def look(path: Path, store: Store) -> FileState | None:
    """The file as it is now, with its content remembered; None when there is none."""
    try:
        content, status = path.read_bytes(), path.stat()
        link = str(path.readlink()) if path.is_symlink() else ""
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.InstallError(f"cannot read {path}: {error.strerror}") from error
    return FileState(store.keep(content), status.st_mode & 0o7777, status.st_uid, status.st_gid, link)


def real(path: Path) -> Path:
    """The file itself, where the path is a symbolic link to it: what is edited stays shared."""
    try:
        return path.resolve() if path.is_symlink() else path
    except (OSError, RuntimeError) as error:
        raise errors.InstallError(f"cannot follow the link {path}: {error}") from error


def state_of(content: bytes, *, mode: int, owner: str, store: Store) -> FileState:
    """A file as it shall be."""
    try:
        entry = pwd.getpwnam(owner)
    except KeyError:
        raise errors.InstallError(f"there is no user {owner} on this host") from None
    return FileState(store.keep(content), mode, entry.pw_uid, entry.pw_gid)


def put(path: Path, state: FileState | None, store: Store) -> None:
    """Make the file what the state says, in one step."""
    if state is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if state.link:
        _put_link(path, state.link)
        return
    atomic.write(path, store.copy(state.digest), mode=state.mode, owner=(state.uid, state.gid))


def _put_link(path: Path, target: str) -> None:
    """Under another name first, as files are."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name[:100]}.") as folder:
        made = Path(folder) / "link"
        made.symlink_to(target)
        made.replace(path)
    atomic.sync_directory(path.parent)
