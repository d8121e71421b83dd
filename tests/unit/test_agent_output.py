"""Output that the agent keeps for penstockd to fetch."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agentstages import Process, Stage, finish, stage

__all__ = ["stage"]  # pytest finds the fixture by its name


@pytest.fixture
def kept(stage: Stage) -> Iterator[dict[str, Any]]:
    """Settings of an agent whose output is fetched; its processes are stopped at the end."""
    folder = stage.folder / "kept"
    folder.mkdir()
    yield {"kept": str(folder), "stdout": f"{folder}/1", "stderr": f"{folder}/2"}
    (folder / "collected").write_bytes(b"")


def collect(stage: Stage, stream: int, offset: int = 0) -> Process:
    """What penstockd runs in the container."""
    argv = [*stage.shell, str(stage.folder / "agent.sh"), "collect", str(stream), str(offset)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_kept_output_is_complete_before_the_agent_ends(stage: Stage, kept: dict[str, Any]) -> None:
    """Both streams, all bytes; the agent exits once `collected` is empty."""
    agent = stage.start("printf 'a\\000b'; echo err >&2; exit 3\n", **kept)
    assert finish(collect(stage, 1)) == (0, "a\0b", "")
    assert finish(collect(stage, 2)) == (0, "err\n", "")
    assert agent.poll() is None
    (Path(kept["kept"]) / "collected").write_bytes(b"")
    assert finish(agent)[0] == 3


def test_second_collector_continues_at_an_offset(stage: Stage, kept: dict[str, Any]) -> None:
    """It prints the rest, and the first one ends."""
    go = stage.folder / "go"
    agent = stage.start(f"echo first; until [ -e {go} ]; do sleep 0.05; done; echo second\n", **kept)
    one = collect(stage, 1)
    assert one.stdout is not None
    assert one.stdout.readline() == b"first\n"
    other = collect(stage, 1, len("first\n"))
    assert finish(one) == (1, "", "")
    go.touch()
    assert finish(other) == (0, "second\n", "")
    (Path(kept["kept"]) / "collected").write_bytes(b"")
    assert finish(agent)[0] == 0


def test_collector_survives_sigterm_to_all(stage: Stage, kept: dict[str, Any]) -> None:
    """SIGTERM to every process of the job must not stop the collection of its last output."""
    agent = stage.start("trap 'echo bye; exit 5' TERM\necho up\nwhile :; do sleep 0.05; done\n", **kept)
    collector = collect(stage, 1)
    assert collector.stdout is not None
    assert collector.stdout.readline() == b"up\n"
    collector.terminate()
    agent.terminate()
    assert finish(collector) == (0, "bye\n", "")
    (Path(kept["kept"]) / "collected").write_bytes(b"")
    assert finish(agent)[0] == 5


def test_deleted_pod_does_not_wait_for_a_collector(stage: Stage, kept: dict[str, Any]) -> None:
    """SIGTERM after the script has ended: nobody will collect."""
    agent = stage.start("exit 4\n", **kept)
    begun, ended = (Path(kept["kept"]) / name for name in ("begun", "ended"))
    deadline = time.monotonic() + 60
    while not begun.exists() or ended.stat().st_size:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    agent.terminate()
    assert finish(agent)[0] == 4


def test_agent_ends_on_a_full_disk(stage: Stage, kept: dict[str, Any]) -> None:
    """It only has to truncate files that exist."""
    folder = Path(kept["kept"])
    for stream in (1, 2):
        (folder / f"collector.{stream}").mkdir()  # which cannot be written
    agent = stage.start(f"ls {folder}; exit 3\n", **kept)
    code, names, _ = finish(collect(stage, 1))
    assert (code, finish(collect(stage, 2))[0]) == (0, 0)
    (folder / "collected").write_bytes(b"")
    assert finish(agent)[0] == 3
    assert {path.name for path in folder.iterdir()} == set(names.split())


def test_disk_full_at_start_is_reported(stage: Stage, kept: dict[str, Any]) -> None:
    """At once: the job would not end otherwise."""
    (Path(kept["kept"]) / "collected").mkdir()  # which cannot be written
    assert finish(stage.start("echo ran\n", **kept)) == (126, "", "")
    assert stage.last_words.read_text() == "penstock: the node's disk has no room for the job's output\n"
    (Path(kept["kept"]) / "collected").rmdir()


def test_image_without_tools_for_fetching_is_reported(stage: Stage, kept: dict[str, Any]) -> None:
    """Fetched output needs cat, tail and sleep; without one of them the job does not start."""
    if stage.shell[0] == "busybox":
        pytest.skip("busybox brings them itself")
    process = stage.start("echo ran\n", start_path="/nonexistent", **kept)
    expected = "penstock: the image has no cat, so output can only go to the shared folders\n"
    assert finish(process) == (126, "", "")
    assert stage.last_words.read_text() == expected
    assert not Path(kept["stdout"]).exists()
