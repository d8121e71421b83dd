"""All-or-nothing changes of files and objects that survive being killed at any point.

Before the first change, all that a rollback needs is on disk: copies of the files, the old objects, and a
journal that lists them. The commit is the rename of the new installed.json. If the next call finds a journal,
it rolls back unless that rename has happened; then it only removes the journal. A file that somebody else has
changed in the meantime is kept and reported.
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
"""Kinds whose fields cannot be given up: they are required or immutable."""


class FileChange(msgspec.Struct, frozen=True):
    """A change of a file; None: it does not exist."""

    path: str
    before: inventory.FileState | None
    after: inventory.FileState | None


class ObjectChange(msgspec.Struct, frozen=True):
    """A change of an object of ours; None: it is not ours."""

    path: str
    before: Manifest | None
    after: Manifest | None
    existed: bool = False
    """Somebody else had created it: it is never removed."""
    found: Manifest | None = None
    """The previous values of somebody else's object in the fields that our manifest sets."""


class Journal(msgspec.Struct, frozen=True):
    """journal.json."""

    transaction: str
    files: list[FileChange]
    objects: list[ObjectChange]
    restart: bool
    last: bool
    """Nothing is installed afterwards: the commit is the removal of installed.json."""


class Objects(Protocol):
    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest: ...

    def delete(self, manifest: Manifest) -> bool: ...


Restart = Callable[[], None]
Observer = Callable[[str], None]
InUse = Callable[[Mapping[str, inventory.ObjectRecord]], Collection[str]]
"""Returns the paths of those objects that others use by now."""
Keep = Callable[[FileChange, inventory.FileState | None], inventory.FileState | None]
"""Returns what rollback makes of a file that somebody else has changed, given its present state."""


def as_it_is(change: FileChange, now: inventory.FileState | None) -> inventory.FileState | None:
    return now


def ignore(step: str) -> None:
    pass


def nobody(made: Mapping[str, inventory.ObjectRecord]) -> Collection[str]:
    return ()


class Transaction:
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
        """Paths of objects that this call has begun to change; None if an earlier call was interrupted."""

    def run(
        self,
        files: Sequence[FileChange],
        objects: Sequence[ObjectChange],
        *,
        restart: bool,
        installed: inventory.Installed,
    ) -> None:
        """Make all changes and commit `installed`. If one fails, roll back and raise InstallError."""
        last = not installed.files and not installed.objects
        journal = Journal(uuid.uuid4().hex, list(files), list(objects), restart, last)
        changed = (state for change in files for state in (change.before, change.after))
        known = (state for each in installed.files.values() for state in (each.ours, each.original))
        self._store.save(_digests(changed), _digests(known))
        self._write(self._store.journal_path, journal)
        try:
            self._forward(journal)
        except (errors.PenstockError, OSError) as error:
            self._fail(error, journal)
        self._commit(journal, installed)

    def _fail(self, error: Exception, journal: Journal) -> NoReturn:
        reason = getattr(error, "message", "") or str(error)
        try:
            left = self._roll_back(journal)
        except (errors.PenstockError, OSError) as second:
            raise errors.InstallError(
                f"{reason}; the rollback failed as well: {getattr(second, 'message', second)}",
                hint="Fix that; the next `penstock apply` or `penstock uninstall` rolls back first.",
            ) from error
        raise errors.InstallError(
            f"{reason}; everything{' else' * bool(left)} is as it was before{left}",
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
        """Finish or roll back an interrupted call; returns a sentence about it, or an empty string."""
        try:
            journal = msgspec.json.decode(self._store.journal_path.read_bytes(), type=Journal)
        except FileNotFoundError:
            return ""
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise errors.InstallError(f"cannot read {self._store.journal_path}: {error}") from error
        if self._is_committed(journal):
            self._store.journal_path.unlink()
            return "an earlier call was interrupted after it was complete"
        if journal.objects and self._objects is None:
            raise errors.InstallError(
                "an earlier call was interrupted, and its changes in Kubernetes must be rolled back, too",
                hint="Run the command without --no-kubernetes.",
            )
        left = self._roll_back(journal)
        return f"an earlier call was interrupted: its changes were rolled back{left}"

    def _is_committed(self, journal: Journal) -> bool:
        if journal.last:
            return not self._store.installed_path.exists()
        return self._store.installed().transaction == journal.transaction

    def _roll_back(self, journal: Journal) -> str:
        """Returns a remark on files and objects that stay because others changed or use them."""
        left = [file.path for file in reversed(journal.files) if not self._restore(file)]
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
                manifest = change.after or {}
                kept.append(f"{manifest['kind']} {manifest['metadata']['name']}")
            else:
                self._apply(change.after, change.before, existed=change.existed)
        self._store.journal_path.unlink()
        return _named("kept because changed by others", left) + _named("kept because others use it", kept)

    def _restore(self, change: FileChange) -> bool:
        """False if somebody else has changed the file."""
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
        """Paths of objects that were to be created and that others use by now: they stay."""
        made = {
            change.path: inventory.ObjectRecord(change.after)
            for change in journal.objects
            if change.before is None and change.after is not None and not change.existed
        }
        return self._in_use(made) if made and self._objects is not None else ()

    def _give_back(self, change: ObjectChange) -> None:
        """Set the previous values: applying took over the fields, so giving them up would remove them."""
        if self._objects is not None and change.found is not None:
            self._objects.apply(change.found)

    def _write(self, path: Path, value: msgspec.Struct) -> None:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2)
        atomic.write(path, text, mode=0o600)


def _content(state: inventory.FileState | None) -> str:
    return state.digest if state is not None else ""


def _named(why: str, left: Sequence[str]) -> str:
    return f"; {why}: {', '.join(left)}" if left else ""


def _digests(states: Iterable[inventory.FileState | None]) -> set[str]:
    return {state.digest for state in states if state is not None}


def identity_of(manifest: Manifest) -> Manifest:
    """The object without our fields: applying it gives them all up."""
    metadata = {
        key: manifest["metadata"][key] for key in ("name", "namespace") if key in manifest["metadata"]
    }
    return {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": metadata}


def part_of(live: Manifest, manifest: Manifest) -> Manifest:
    """The live values of the manifest's fields: applying them restores the object."""
    return identity_of(manifest) | _common(live, manifest)


def _common(live: Manifest, wanted: Manifest) -> Manifest:
    """Lists are not descended into."""
    both = ((key, live[key], value) for key, value in wanted.items() if live.get(key) is not None)
    return {
        key: _common(one, other) if isinstance(one, dict) and isinstance(other, dict) else one
        for key, one, other in both
    }
