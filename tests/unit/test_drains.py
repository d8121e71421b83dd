"""Which drained nodes penstockd resumes: only those that our own Epilog drained."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import errors
from penstock.hooks import ask
from tests.unit import fakes
from tests.unit.test_bridge import World, world

__all__ = ["world"]  # pytest finds the fixture by its name

KILLED = "Epilog error"
HOLDER = """
import sys
from penstock.hooks import ask
ask.create_note(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


def note(folder: Path, name: str, *, at: float = 990.0) -> Path:
    """Write an Epilog's note with that time."""
    path = folder / f"{ask.NOTE}:{name}"
    path.touch()
    os.utime(path, (at, at))
    return path


@pytest.fixture
def running_epilog(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Our Epilog of job 7 on n1, still running."""
    argv = (sys.executable, "-c", HOLDER, str(tmp_path / "epilog:n1:7:ours"))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


async def freed(world: World, folder: Path, reason: str, *, node: str = "n1") -> bool:
    """Whether a clean node drained for this reason is resumed."""
    world.slurm.reasons[node] = reason
    await fakes.drainer(world.bridge, folder).lift()
    return node not in world.slurm.reasons


async def test_an_epilog_error_without_a_note_of_ours_stays(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The site's health check drained the node; this is logged once."""
    drainer = fakes.drainer(world.bridge, tmp_path)
    world.slurm.reasons["n1"] = KILLED
    with caplog.at_level(logging.WARNING):
        await drainer.lift()
        await drainer.lift()
    assert world.slurm.reasons == {"n1": KILLED}
    said = [record.getMessage() for record in caplog.records if "n1 stays drained" in record.getMessage()]
    assert len(said) == 1
    assert "scontrol update NodeName=n1 State=RESUME" in said[0]


async def test_the_drain_of_a_killed_epilog_of_ours_is_lifted(world: World, tmp_path: Path) -> None:
    """Its note exists and is not locked; the next drain needs another note."""
    left = note(tmp_path, "n1:7:ours")
    assert await freed(world, tmp_path, KILLED)
    assert not left.exists()
    assert not await freed(world, tmp_path, KILLED)


@pytest.mark.parametrize("name", ["n2:7:ours", "n1:7:else", "n1:x:ours", "n1:7"])
async def test_other_files_are_no_notes(world: World, tmp_path: Path, name: str) -> None:
    note(tmp_path, name)
    assert not await freed(world, tmp_path, KILLED)


async def test_a_symlink_is_no_note(world: World, tmp_path: Path) -> None:
    (tmp_path / "epilog:n1:7:ours").symlink_to(note(tmp_path, "elsewhere"))
    assert not await freed(world, tmp_path, KILLED)


async def test_the_note_of_a_running_epilog_does_not_count(
    world: World, tmp_path: Path, running_epilog: subprocess.Popen[str]
) -> None:
    os.utime(tmp_path / "epilog:n1:7:ours", (990, 990))
    assert not await freed(world, tmp_path, KILLED)
    running_epilog.kill()
    running_epilog.wait(timeout=30)
    assert await freed(world, tmp_path, KILLED)


async def test_a_note_newer_than_the_drain_is_not_its_cause(world: World, tmp_path: Path) -> None:
    note(tmp_path, "n1:7:ours", at=world.slurm.since + 60)
    assert not await freed(world, tmp_path, KILLED)


@pytest.mark.parametrize("reason", [KILLED, "penstock: pods of job 7 may still run here"])
async def test_a_failed_epilog_of_the_sites_keeps_the_node_drained(
    world: World, tmp_path: Path, reason: str
) -> None:
    """Slurm sets no second reason on a drained node."""
    note(tmp_path, "n1:7:ours")
    failed = note(tmp_path, "n1:8:site")
    assert not await freed(world, tmp_path, reason)
    failed.unlink()
    assert await freed(world, tmp_path, reason)


@pytest.mark.parametrize(
    "reason", ["penstock: broken GPU", "penstock: pods of job 7 may still run here!", ""]
)
async def test_only_our_exact_reason_is_ours(world: World, tmp_path: Path, reason: str) -> None:
    """An administrator's reason may begin with our name."""
    note(tmp_path, "n1:7:ours")
    assert not await freed(world, tmp_path, reason)


@pytest.mark.parametrize("reason", [KILLED, "penstock: pods of job 7 may still run here"])
async def test_nodes_of_other_partitions_are_left_alone(world: World, tmp_path: Path, reason: str) -> None:
    note(tmp_path, "x1:7:ours")
    assert not await freed(world, tmp_path, reason, node="x1")


async def test_an_epilog_error_on_a_node_unknown_to_kubernetes_stays(world: World, tmp_path: Path) -> None:
    note(tmp_path, "n9:7:ours")
    assert not await freed(world, tmp_path, KILLED, node="n9")


def later(world: World, seconds: float) -> None:
    """Time passes with fresh caches."""
    clock = world.bridge.context.time
    assert isinstance(clock, fakes.ManualClock)
    clock.time += seconds
    world.bridge.context.pods._broken_since = world.bridge.context.nodes._broken_since = None


@pytest.mark.parametrize("whose", ["ours", "site"])
async def test_notes_of_nodes_resumed_by_others_are_removed(world: World, tmp_path: Path, whose: str) -> None:
    """They must not resume the next drain, nor keep it; Slurm may learn of the Epilog a little later."""
    left, drainer = note(tmp_path, f"n1:7:{whose}"), fakes.drainer(world.bridge, tmp_path)
    for seconds, there in ((0, True), (45, True), (30, False)):
        later(world, seconds)
        await drainer.lift()
        assert left.exists() is there


async def test_a_note_is_kept_as_long_as_its_node_is_drained(world: World, tmp_path: Path) -> None:
    """Time before the drain does not count."""
    left, drainer = note(tmp_path, "n1:7:site"), fakes.drainer(world.bridge, tmp_path)
    await drainer.lift()
    for reason in (KILLED, "broken fan"):
        later(world, 1000)
        world.slurm.reasons["n1"] = reason
        await drainer.lift()
        assert left.exists()
    world.slurm.reasons.clear()
    await drainer.lift()
    assert left.exists()


async def test_abandon_keeps_an_existing_drain_reason(world: World, tmp_path: Path) -> None:
    world.slurm.reasons["n1"] = "broken fan"
    drainer = fakes.drainer(world.bridge, tmp_path)
    await drainer.abandon(7, "n1")
    await drainer.lift()
    assert world.slurm.reasons == {"n1": "broken fan"}


async def test_abandon_fails_without_slurm(world: World, tmp_path: Path) -> None:
    """The Epilog then fails, and the node is resumed by its note."""
    world.slurm.away = True
    with pytest.raises(errors.SlurmUnavailable):
        await fakes.drainer(world.bridge, tmp_path).abandon(7, "n1")
