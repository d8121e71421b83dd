"""Many changes that happen all or not at all, also when we are killed between any two of them.

Before the first change everything that it takes to go back is on the disk: copies of all files, the objects
as they were, and a journal that names them. The commit is one rename, of the new record of what is installed.
Whoever comes next and finds a journal looks which side of that rename it is on: before it everything goes
back, after it only the journal goes. A file that somebody has changed since is theirs: it stays, and is
named.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

import msgspec

from penstock import errors
from penstock.install import inventory
from penstock.nas import atomic

Manifest = dict[str, Any]


NEVER_EMPTY = (
    "PriorityClass", "StorageClass", "PersistentVolume", "PersistentVolumeClaim", "ClusterRoleBinding",
    "DaemonSet", "Deployment",
)  # fmt: skip
"""Kinds whose fields nobody can give up: the API takes none without them, or lets nobody change them."""


class FileChange(msgspec.Struct, frozen=True):
    """A file from one state to another; None is "not there"."""

    path: str
    before: inventory.FileState | None
    after: inventory.FileState | None


class ObjectChange(msgspec.Struct, frozen=True):
    """An object of ours from one manifest to another; None is "none of ours"."""

    path: str
    before: Manifest | None
    after: Manifest | None
    existed: bool = False
    """Somebody else had it before us: it is never removed."""
    found: Manifest | None = None
    """What somebody else's said before it became ours, where our manifest says something."""


class Journal(msgspec.Struct, frozen=True):
    """journal.json."""

    transaction: str
    files: list[FileChange]
    objects: list[ObjectChange]
    restart: bool
    last: bool
    """Nothing is installed afterwards: the commit is that the record is gone."""


class Objects(Protocol):
    """What a transaction may ask of Kubernetes."""

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest: ...

    def delete(self, manifest: Manifest) -> bool: ...


Restart = Callable[[], None]
Observer = Callable[[str], None]


InUse = Callable[[Mapping[str, inventory.ObjectRecord]], Collection[str]]
"""Which of these objects, by their paths, others use by now."""


Keep = Callable[[FileChange, inventory.FileState | None], inventory.FileState | None]
"""What becomes of a file on the way back that somebody has changed since: from its state now."""


def as_it_is(change: FileChange, now: inventory.FileState | None) -> inventory.FileState | None:
    """It stays whole."""
    return now


def ignore(step: str) -> None:
    """Nobody watches."""


def nobody(made: Mapping[str, inventory.ObjectRecord]) -> Collection[str]:
    """Nobody else is there."""
    return ()


class Transaction:
    """One set of changes."""

    def __init__(
        self,
        store: inventory.Store,
        *,
        objects: Objects | None,
        restart: Restart,
        observe: Observer = ignore,
        in_use: InUse = nobody,
        keep: Keep = as_it_is,
    ) -> None:
        self._store = store
        self._objects = objects
        self._restart = restart
        self._observe = observe
        self._in_use = in_use
        self._keep = keep
        self._begun: set[str] | None = None
        """Objects, by their paths, that this very call has begun to change; None when nobody knows."""

    def run(
        self,
        files: Sequence[FileChange],
        objects: Sequence[ObjectChange],
        *,
        restart: bool,
        installed: inventory.Installed,
    ) -> None:
        """Make all changes and commit `installed`; when one fails, take all back and say why."""
        last = not installed.files and not installed.objects
        journal = Journal(uuid.uuid4().hex, list(files), list(objects), restart, last)
        changed = (state for change in files for state in (change.before, change.after))
        known = (state for each in installed.files.values() for state in (each.ours, each.original))
        self._store.save(_digests(changed), _digests(known))
        self._write(self._store.journal_path, journal)
        try:
            self._forward(journal)
        except (errors.PenstockError, OSError) as error:
            self._back_after(error, journal)
        self._commit(journal, installed)

    def _back_after(self, error: Exception, journal: Journal) -> NoReturn:
        said = getattr(error, "message", "") or str(error)
        try:
            left = self._back(journal)
        except (errors.PenstockError, OSError) as second:
            raise errors.InstallError(
                f"{said}; going back failed as well: {getattr(second, 'message', second)}",
                hint="Put that right; the next `penstock apply` or `penstock uninstall` goes back first.",
            ) from error
        raise errors.InstallError(
            f"{said}; everything{' else' * bool(left)} is as it was before{left}",
            hint=getattr(error, "hint", ""),
        ) from error

    def _forward(self, journal: Journal) -> None:
        self._begun = set()
        self._observe("journal")
        for change in journal.objects:
            self._begun.add(change.path)
            if change.existed and change.after is None and change.found is not None:
                self._give_back(change)
            else:
                self._apply(change.before, change.after, existed=change.existed)
            self._observe(change.path)
        for file in journal.files:
            inventory.put(Path(file.path), file.after, self._store)
            self._observe(file.path)
        if journal.restart:
            self._restart()
            self._observe("restart")

    def _commit(self, journal: Journal, installed: inventory.Installed) -> None:
        if not journal.last:
            named = msgspec.structs.replace(installed, transaction=journal.transaction)
            self._write(self._store.installed_path, named)
        else:
            self._store.installed_path.unlink(missing_ok=True)
        self._observe("commit")
        self._store.journal_path.unlink()

    def recover(self) -> str:
        """Finish or take back what a call that was killed left; a sentence about it, or nothing."""
        try:
            journal = msgspec.json.decode(self._store.journal_path.read_bytes(), type=Journal)
        except FileNotFoundError:
            return ""
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise errors.InstallError(f"{self._store.journal_path} cannot be read: {error}") from error
        if self._is_committed(journal):
            self._store.journal_path.unlink()
            return "an earlier call was cut short after it was done"
        if journal.objects and self._objects is None:
            raise errors.InstallError(
                "an earlier call was cut short, and what it changed in Kubernetes must go back, too",
                hint="Call it without --no-kubernetes.",
            )
        left = self._back(journal)
        return f"an earlier call was cut short: what it had changed was taken back{left}"

    def _is_committed(self, journal: Journal) -> bool:
        if journal.last:
            return not self._store.installed_path.exists()
        return self._store.installed().transaction == journal.transaction

    def _back(self, journal: Journal) -> str:
        """A remark on files and objects that stay because they have become somebody else's, too."""
        left = [file.path for file in reversed(journal.files) if not self._put_back(file)]
        if journal.restart:
            self._restart()
        used = self._made_and_used(journal)
        kept = []
        for change in reversed(journal.objects):
            if self._begun is not None and change.path not in self._begun:
                continue
            if change.existed and change.before is None:
                self._give_back(change)
            elif change.path in used:
                kept.append(_shown(change.after or {}))
            else:
                self._apply(change.after, change.before, existed=change.existed)
        self._store.journal_path.unlink()
        return _named("changed since and left as it is", left) + _named("left because others use it", kept)

    def _put_back(self, change: FileChange) -> bool:
        """False when it has become somebody else's."""
        path = Path(change.path)
        now = inventory.look(path, self._store)
        is_known = _content(now) in (_content(change.before), _content(change.after))
        goal = change.before if is_known else self._keep(change, now)
        if now != goal:
            inventory.put(path, goal, self._store)
        self._observe(f"back {change.path}")
        return is_known

    def _apply(self, before: Manifest | None, after: Manifest | None, *, existed: bool) -> None:
        if self._objects is None:
            return
        if after is not None:
            self._objects.apply(after)
        elif before is not None and existed:
            if before["kind"] not in NEVER_EMPTY:
                self._objects.apply(identity_of(before))
        elif before is not None:
            self._objects.delete(before)

    def _made_and_used(self, journal: Journal) -> Collection[str]:
        """Of what was to be made what others have come to use, or have made themselves: it stays."""
        made = {
            change.path: inventory.ObjectRecord(change.after)
            for change in journal.objects
            if change.before is None and change.after is not None and not change.existed
        }
        return self._in_use(made) if made and self._objects is not None else ()

    def _give_back(self, change: ObjectChange) -> None:
        """Applying took the fields over by force: giving them up would leave the object without them."""
        if self._objects is not None and change.found is not None:
            self._objects.apply(change.found)

    def _write(self, path: Path, value: msgspec.Struct) -> None:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2)
        atomic.write(path, text, mode=0o600)


def _content(state: inventory.FileState | None) -> str:
    return state.digest if state is not None else ""


def _shown(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _named(why: str, left: Sequence[str]) -> str:
    return f"; {why}: {', '.join(left)}" if left else ""


def _digests(states: Iterable[inventory.FileState | None]) -> set[str]:
    return {state.digest for state in states if state is not None}


def identity_of(manifest: Manifest) -> Manifest:
    """The object without anything we say of it: applying this gives up all our fields."""
    metadata = {
        key: manifest["metadata"][key] for key in ("name", "namespace") if key in manifest["metadata"]
    }
    return {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": metadata}


def part_of(live: Manifest, manifest: Manifest) -> Manifest:
    """What a live object says where the manifest says something: applying this makes it say that again."""
    return identity_of(manifest) | _common(live, manifest)


def _common(live: Manifest, wanted: Manifest) -> Manifest:
    """Lists are taken whole."""
    both = ((key, live[key], value) for key, value in wanted.items() if live.get(key) is not None)
    return {
        key: _common(one, other) if isinstance(one, dict) and isinstance(other, dict) else one
        for key, one, other in both
    }
