"""The drop folder: opened anew for every pass, recognised by its marker, protected by owners and modes.

Nothing stays open between passes, so the NAS can be unmounted. Everything in a pass is relative to the
directories opened at its start, so paths that change meanwhile do no harm. A mount point without its NAS has
no marker, so it is never mistaken for a NAS that lost all its files.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock import errors, wellknown
from penstock.nas import atomic

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MARKER_BYTES = 200


class Folder(msgspec.Struct, frozen=True):
    """Descriptors of the drop folder's directories."""

    root: int
    submit: int
    processed: int
    failed: int
    work: int


def prepare(path: Path, *, instance: str, known: str, readme: str) -> str:
    """Create what is missing in the folder, which must exist itself; returns its marker."""
    with contextlib.ExitStack() as stack:
        root = _open(stack, path)
        marker = _marker(root)
        if known and marker != known:
            raise _wrong_marker(path, marker)
        _require_own(root, path)  # before anything is created in it: modes are set by name
        if not marker:
            marker = secrets.token_hex(16)
            atomic.write(path / wellknown.DROP_MARKER, f"{marker}\n".encode())
        _make(root, wellknown.DROP_SUBMIT, 0o1777)
        _make(root, wellknown.DROP_PROCESSED, 0o755)
        _make(root, wellknown.DROP_FAILED, 0o755)
        _make(root, wellknown.DROP_WORK, 0o700)
        _make(_open(stack, wellknown.DROP_WORK, root), instance, 0o700)
        if not (path / wellknown.DROP_README).exists():
            atomic.write(path / wellknown.DROP_README, readme.encode())
    return marker


@contextlib.contextmanager
def opened(path: Path, *, instance: str, marker: str) -> Iterator[Folder]:
    """The folder for one pass. Raises NasUnavailable if it is missing or not safe."""
    with contextlib.ExitStack() as stack:
        root = _open(stack, path)
        found = _marker(root)
        if found != marker:
            raise _wrong_marker(path, found)
        work = _open(stack, wellknown.DROP_WORK, root)
        folder = Folder(
            root=root,
            submit=_open(stack, wellknown.DROP_SUBMIT, root),
            processed=_open(stack, wellknown.DROP_PROCESSED, root),
            failed=_open(stack, wellknown.DROP_FAILED, root),
            work=_open(stack, instance, work),
        )
        _require_safe(folder, path)
        yield folder


@contextlib.contextmanager
def inside(directory: int, name: str, *, make: int = 0) -> Iterator[int]:
    """Open a directory below an open one; with `make`, create it with that mode if it is missing."""
    if make:
        _make(directory, name, make)
    with contextlib.ExitStack() as stack:
        yield _open(stack, name, directory)


def is_full(folder: Folder) -> bool:
    room = os.fstatvfs(folder.submit)
    return room.f_blocks > 0 and room.f_bavail == 0


def _open(stack: contextlib.ExitStack, path: Path | str, below: int | None = None) -> int:
    try:
        descriptor = os.open(path, _DIRECTORY, dir_fd=below)
    except OSError as error:
        raise errors.NasUnavailable(
            f"cannot open the folder {path}: {error.strerror}",
            hint="Is the NAS mounted? If it is, and this is its first use, create the folder there.",
        ) from error
    stack.callback(os.close, descriptor)
    return descriptor


def _marker(root: int) -> str:
    try:
        descriptor = os.open(wellknown.DROP_MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    except FileNotFoundError:
        return ""
    try:
        return os.read(descriptor, _MARKER_BYTES).decode(errors="replace").strip()
    finally:
        os.close(descriptor)


def _wrong_marker(path: Path, found: str) -> errors.NasUnavailable:
    what = "another NAS than before" if found else "not the NAS: its marker is missing"
    return errors.NasUnavailable(
        f"{path} is {what}", hint="Is it mounted? No file is submitted until it is back, and none is lost."
    )


def _make(directory: int, name: str, mode: int) -> None:
    """Created with its final mode: an existing directory is never changed, also not a half-made one."""
    before = os.umask(0)
    try:
        os.mkdir(name, mode, dir_fd=directory)
    except FileExistsError:
        return
    finally:
        os.umask(before)
    os.chmod(name, mode, dir_fd=directory)  # a default ACL may have changed it


def _require_safe(folder: Folder, path: Path) -> None:
    """Who may write a directory may swap files in it: only submit/ is open to users, and it is sticky."""
    for name in ("root", "processed", "failed", "work"):
        _require_own(getattr(folder, name), path if name == "root" else path / name)
    submit = os.fstat(folder.submit)
    if submit.st_uid != os.geteuid() or (submit.st_mode & 0o022 and not submit.st_mode & stat.S_ISVTX):
        raise errors.NasUnavailable(
            f"{path / wellknown.DROP_SUBMIT} must belong to root and be sticky",
            hint=f"chown root {path}/submit; chmod 1777 {path}/submit",
        )


def _require_own(directory: int, shown: Path) -> None:
    found = os.fstat(directory)
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise errors.NasUnavailable(
            f"{shown} must belong to root and be writable by nobody else",
            hint=f"chown root {shown}; chmod go-w {shown}; over NFS, export it with no_root_squash.",
        )
