"""Transactions are atomic even if killed between any two steps."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from penstock import errors
from penstock.install import inventory, transactions

Manifest = dict[str, Any]


class Disk:
    """A cluster whose objects are in a file and survive a kill."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Manifest]:
        found: dict[str, Manifest] = json.loads(self.path.read_text()) if self.path.exists() else {}
        return found

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        known = self.read()
        known[manifest["metadata"]["name"]] = manifest
        self.path.write_text(json.dumps(known))
        return manifest

    def delete(self, manifest: Manifest) -> bool:
        known = self.read()
        found = known.pop(manifest["metadata"]["name"], None)
        self.path.write_text(json.dumps(known))
        return found is not None


def thing(name: str, value: int) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "x"},
        "data": value,
    }


class World:
    """Files, objects, and the number of restarts."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        self.store = inventory.Store(folder / "store")
        self.disk = Disk(folder / "objects.json")
        (self.root / "changed").write_text("before")
        (self.root / "changed").chmod(0o640)
        (self.root / "removed").write_text("there")
        self.disk.apply(thing("old", 1))
        with self.store.locked():
            pass

    def plan(self) -> tuple[list[transactions.FileChange], list[transactions.ObjectChange]]:
        goals: dict[str, bytes | None] = {"made": b"new", "changed": b"after", "removed": None}
        files = []
        for name, content in goals.items():
            path = self.root / name
            after = (
                inventory.state_of(content, mode=0o600, owner="root", store=self.store)
                if content is not None
                else None
            )
            files.append(transactions.FileChange(str(path), inventory.look(path, self.store), after))
        objects = [
            transactions.ObjectChange("/new", None, thing("new", 1)),
            transactions.ObjectChange("/old", thing("old", 1), thing("old", 2)),
        ]
        return files, objects

    def installed(self) -> inventory.Installed:
        return inventory.Installed(objects={"/new": inventory.ObjectRecord(thing("new", 1))})

    def run(self, observe: transactions.Observer, restart: Callable[[], None] = lambda: None) -> None:
        files, objects = self.plan()
        transaction = transactions.Transaction(
            self.store, objects=self.disk, restart=restart, observe=observe
        )
        transaction.run(files, objects, restart=True, installed=self.installed())

    def recover(self) -> str:
        return transactions.Transaction(self.store, objects=self.disk, restart=lambda: None).recover()

    def seen(self) -> dict[str, Any]:
        files = {
            path.name: (path.read_text(), path.stat().st_mode & 0o777) for path in sorted(self.root.iterdir())
        }
        return {"files": files, "objects": self.disk.read()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two files and an object."""
    if os.geteuid() != 0:
        pytest.skip("files change owners: needs root")
    return World(tmp_path)


def killed_at(step: int, act: Callable[[transactions.Observer], None]) -> bool:
    """Run in a child that kills itself at this step; False if there are fewer steps."""
    pid = os.fork()
    if pid == 0:
        left = [step]

        def observe(name: str) -> None:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1

        try:
            act(observe)
        except errors.PenstockError:
            pass
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def test_what_stays_after_a_rollback_is_reported(world: World) -> None:
    """An object that others use by now."""
    files, objects = world.plan()
    restart = mock.Mock(side_effect=(errors.InstallError("slurmctld did not start"), None))
    transaction = transactions.Transaction(
        world.store, objects=world.disk, restart=restart, in_use=lambda made: {"/new"} & made.keys()
    )
    with pytest.raises(errors.InstallError) as caught:
        transaction.run(files, objects, restart=True, installed=world.installed())
    assert caught.value.message == (
        "slurmctld did not start; everything else is as it was before;"
        " kept because others use it: ConfigMap new"
    )
    assert world.disk.read() == {"old": thing("old", 1), "new": thing("new", 1)}


STEPS = 8  # journal, two objects, three files, restart, commit


@pytest.mark.parametrize("step", range(STEPS))
def test_killed_at_any_step_recovery_restores_or_completes(world: World, step: int) -> None:
    before = world.seen()
    assert killed_at(step, world.run)
    said = world.recover()
    assert not world.store.journal_path.exists()
    if step == STEPS - 1:
        assert "after it was complete" in said
        assert world.seen()["files"] == {"changed": ("after", 0o600), "made": ("new", 0o600)}
        assert world.store.installed().objects
    else:
        assert "rolled back" in said
        assert world.seen() == before
        assert not world.store.installed().objects


def test_all_steps_are_covered(world: World) -> None:
    assert not killed_at(STEPS, world.run)
    assert world.seen()["objects"] == {"new": thing("new", 1), "old": thing("old", 2)}


@pytest.mark.parametrize("step", range(7, 10))
def test_killed_rollback_is_repeated_by_the_next_call(world: World, step: int) -> None:
    before = world.seen()
    tries = iter((True, False))

    def restart() -> None:
        if next(tries, False):
            raise errors.InstallError("slurmctld did not start")

    assert killed_at(step - 1, lambda observe: world.run(observe, restart))
    assert "rolled back" in world.recover()
    assert world.seen() == before
    assert world.recover() == ""


def test_failed_restart_rolls_back(world: World) -> None:
    """With the reason."""
    before, tries = world.seen(), [0]

    def restart() -> None:
        tries[0] += 1
        if tries[0] == 1:
            raise errors.InstallError("slurmctld did not start", hint="look at its log")

    with pytest.raises(errors.InstallError, match="everything is as it was before") as caught:
        world.run(transactions.ignore, restart)
    assert caught.value.hint == "look at its log"
    assert world.seen() == before
    assert tries == [2], "with the old files it is started again"
    assert not world.store.journal_path.exists()


def test_journal_with_objects_needs_kubernetes_for_recovery(world: World) -> None:
    """Otherwise its objects would stay forever, unrecorded."""
    before = world.seen()
    assert killed_at(STEPS - 2, world.run)
    blind = transactions.Transaction(world.store, objects=None, restart=lambda: None)
    with pytest.raises(errors.InstallError, match="in Kubernetes must be rolled back") as caught:
        blind.recover()
    assert "--no-kubernetes" in caught.value.hint
    assert "rolled back" in world.recover()
    assert world.seen() == before


def test_second_call_is_refused_while_one_runs(world: World) -> None:
    other = inventory.Store(world.store.directory)
    with (
        world.store.locked(),
        pytest.raises(errors.InstallError, match="another `penstock apply`"),
        other.locked(),
    ):
        pass


def test_somebody_elses_object_is_given_up_not_removed() -> None:
    """Applying only the name removes our fields and keeps theirs."""
    assert transactions.identity_of(thing("a", 1)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "x"},
    }
