"""The agent's part in a gang's names: the file for /etc/hosts, its other lines, and the wait for them."""

from __future__ import annotations

import os
import signal
import time

import pytest

from penstock.render import podenv
from tests.unit.agentstages import Process, Stage, finish, stage

__all__ = ["stage"]  # pytest finds the fixture by its name
OWN = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n10.0.0.1 n1.site n1\n"
OTHERS = "10.0.0.2 n2\n10.0.0.3 n_3 n-3\n"
VARIABLES = {"PENSTOCK_ADDRESS": "10.0.0.1", "PENSTOCK_NAMES": "n1.site n1"}


@pytest.fixture(autouse=True)
def _settings(stage: Stage) -> None:
    """Without output to fetch."""
    (stage.folder / "settings").write_bytes(podenv.assignments({"penstock_kept": b""}))


def look(stage: Stage, **more: str) -> Process:
    return stage.beside("look", added=VARIABLES | more)


def tell(stage: Stage, text: str = f"{OTHERS}.\n") -> int:
    return finish(stage.beside("names", text=text))[0]


def still_runs(process: Process) -> bool:
    time.sleep(0.3)
    return process.poll() is None


def test_init_container_writes_the_pods_own_lines(stage: Stage) -> None:
    """One address, under the node's name first."""
    assert finish(look(stage)) == (0, "", "")
    assert (stage.run_folder / "hosts").read_text() == OWN


def test_pod_without_an_address_fails_in_words(stage: Stage) -> None:
    assert finish(look(stage, PENSTOCK_ADDRESS=""))[0] == 126
    assert stage.last_words.read_text() == "penstock: the pod has no address\n"


def test_missing_folder_is_reported_before_the_names(stage: Stage) -> None:
    """One init container does both."""
    process = stage.beside("look", str(stage.folder), "/no/such", added=VARIABLES)
    assert finish(process)[0] == 1
    assert stage.last_words.read_text().startswith("penstock: #K8S_MOUNT=/no/such: ")
    assert not (stage.run_folder / "hosts").exists()


def test_other_lines_are_added_once(stage: Stage) -> None:
    """However often penstockd repeats itself; into the same file, which is mounted."""
    finish(look(stage))
    hosts = stage.run_folder / "hosts"
    inode = hosts.stat().st_ino
    assert [tell(stage), tell(stage)] == [0, 0]
    assert hosts.read_text() == OWN + OTHERS
    assert hosts.stat().st_ino == inode


@pytest.mark.parametrize("cut", ["", OTHERS, f"{OTHERS}10.0.0.4 n"])
def test_text_that_was_cut_off_adds_nothing(stage: Stage, cut: str) -> None:
    """A connection may break anywhere."""
    finish(look(stage))
    assert tell(stage, cut) == 1
    assert (stage.run_folder / "hosts").read_text() == OWN
    assert tell(stage) == 0


def test_a_thousand_names(stage: Stage) -> None:
    finish(look(stage))
    lines = "".join(f"10.1.{number // 250}.{number % 250} node-{number}\n" for number in range(1000))
    assert tell(stage, f"{lines}.\n") == 0
    assert (stage.run_folder / "hosts").read_text() == OWN + lines


def test_script_starts_when_all_names_are_there(stage: Stage) -> None:
    """And its own jobs, traps and exit code are as ever."""
    finish(look(stage))
    agent = stage.start(f"cat {stage.run_folder}/hosts; sleep 0 & wait $!; exit 137\n")
    assert still_runs(agent)
    assert tell(stage) == 0
    assert finish(agent) == (137, OWN + OTHERS, "")
    assert "signal" not in stage.last_words.read_text()


def test_entrypoint_of_an_image_is_held_by_the_init_container(stage: Stage) -> None:
    """It has no agent that could wait."""
    held = look(stage, PENSTOCK_HELD="1")
    assert still_runs(held)
    assert tell(stage) == 0
    assert finish(held)[0] == 0


@pytest.mark.parametrize("waiting", ["agent", "init"])
def test_deleted_pod_does_not_wait_for_names(stage: Stage, waiting: str) -> None:
    """A kubelet's SIGTERM ends the wait."""
    if waiting == "agent":
        finish(look(stage))
    process = stage.start("echo ran\n") if waiting == "agent" else look(stage, PENSTOCK_HELD="1")
    assert still_runs(process)
    os.kill(process.pid, signal.SIGTERM)
    assert finish(process)[:2] == (143, "")


@pytest.mark.parametrize("role", ["agent", "hold"])
def test_folder_in_the_place_of_the_file_is_reported(stage: Stage, role: str) -> None:
    """A kubelet makes one if no init container has made the file."""
    stage.hosts.mkdir()
    process = stage.start("echo ran\n") if role == "agent" else stage.beside("hold")
    assert finish(process)[:2] == (126, "")
    said = f"penstock: {stage.hosts} is a folder: the pod's init container has not made the file\n"
    assert stage.last_words.read_text() == said


def test_lone_pod_waits_for_nothing(stage: Stage) -> None:
    """Its kubelet has written /etc/hosts."""
    stage.hosts.write_text(OWN)
    assert finish(stage.start("echo ran\n"))[:2] == (0, "ran\n")
