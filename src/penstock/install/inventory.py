"""The records of `apply`: which files and objects are ours, and what was there before.

They are in one directory that only root can read, since a copy of slurmdbd.conf holds a password.
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
    """Content (by the digest of its copy), mode and owner of a file."""

    digest: str
    mode: int
    uid: int
    gid: int
    link: str = ""
    """The target of a symbolic link; the other fields are then those of the target."""


class FileRecord(msgspec.Struct, frozen=True):
    """A file of ours, and the file before our first change."""

    ours: FileState
    original: FileState | None = None


class ObjectRecord(msgspec.Struct, frozen=True):
    """An object of ours; `existed` if somebody else had created it before."""

    manifest: Manifest
    existed: bool = False
    original: Manifest | None = None
    """The fields of such an object that ours changes; None if there are none."""


class Installed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """installed.json."""

    transaction: str = ""
    files: dict[str, FileRecord] = {}
    objects: dict[str, ObjectRecord] = {}
    """By API path."""
    made: list[str] = []
    """Files that are created once and not rendered: penstockd's kubeconfig."""


class Store:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.copies = directory / "copies"
        self.installed_path = directory / "installed.json"
        self.journal_path = directory / "journal.json"
        self._unsaved: dict[str, bytes] = {}

    @contextlib.contextmanager
    def locked(self, *, read_only: bool = False) -> Iterator[None]:
        """Lock the records exclusively; created if missing, unless `read_only`."""
        if read_only and not self.directory.exists():
            yield
            return
        descriptor = self._opened(make=not read_only)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                hint = "Wait for it to end."
                raise errors.InstallError("another `penstock apply` is running", hint=hint) from None
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
        try:
            return msgspec.json.decode(self.installed_path.read_bytes(), type=Installed)
        except FileNotFoundError:
            return Installed()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise errors.InstallError(f"cannot read {self.installed_path}: {error}") from error

    def note_made(self, path: str) -> None:
        """Record a file that `uninstall` shall remove."""
        installed = self.installed()
        noted = msgspec.structs.replace(installed, made=sorted({*installed.made, path}))
        atomic.write(self.installed_path, msgspec.json.encode(noted), mode=0o600)

    def keep(self, content: bytes) -> str:
        """Keep the content, in memory until `save`; returns its digest."""
        digest = hashlib.sha256(content).hexdigest()
        self._unsaved[digest] = content
        return digest

    def copy(self, digest: str) -> bytes:
        known = self._unsaved.get(digest)
        if known is not None:
            return known
        try:
            return (self.copies / digest).read_bytes()
        except FileNotFoundError:
            raise errors.InstallError(
                f"{self.copies / digest}, the copy of an original file, is missing",
                hint="installed.json beside it names the file; restore the copy from a backup.",
            ) from None

    def save(self, needed: Iterable[str], recorded: Iterable[str]) -> None:
        """Write contents to disk: all `needed` ones, and those `recorded` that are still in memory only."""
        self._make()
        for digest in (*needed, *(each for each in recorded if each in self._unsaved)):
            path = self.copies / digest
            if not path.exists():
                atomic.write(path, self.copy(digest), mode=0o600)

    def _remove_if_empty(self) -> None:
        """Remove the directory if nothing is installed."""
        if self.installed_path.exists() or self.journal_path.exists():
            return
        for path in self.copies.iterdir():
            path.unlink()
        with contextlib.suppress(OSError):
            self.copies.rmdir()
            self.directory.rmdir()


def look(path: Path, store: Store) -> FileState | None:
    """The present state of a file, with its content kept in the store; None if it does not exist."""
    try:
        content, status = path.read_bytes(), path.stat()
        link = str(path.readlink()) if path.is_symlink() else ""
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.InstallError(f"cannot read {path}: {error.strerror}") from error
    return FileState(store.keep(content), status.st_mode & 0o7777, status.st_uid, status.st_gid, link)


def real(path: Path) -> Path:
    """The target of a symbolic link, so that an edited file stays shared; else the path itself."""
    try:
        return path.resolve() if path.is_symlink() else path
    except (OSError, RuntimeError) as error:
        raise errors.InstallError(f"cannot follow the link {path}: {error}") from error


def state_of(content: bytes, *, mode: int, owner: str, store: Store) -> FileState:
    try:
        entry = pwd.getpwnam(owner)
    except KeyError:
        raise errors.InstallError(f"there is no user {owner} on this host") from None
    return FileState(store.keep(content), mode, entry.pw_uid, entry.pw_gid)


def put(path: Path, state: FileState | None, store: Store) -> None:
    """Give the file this state atomically."""
    if state is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if not state.link:
        atomic.write(path, store.copy(state.digest), mode=state.mode, owner=(state.uid, state.gid))
        return
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name[:100]}.") as folder:
        link = Path(folder) / "link"
        link.symlink_to(state.link)
        link.replace(path)
    atomic.sync_directory(path.parent)
