"""One component: started until it serves, known again by its record, restarted only when it must be."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from penstock import errors, presence, wellknown
from penstock_lab import components, health, paths, processes, spec, supervision

SERVER = """
import socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
time.sleep(60)
"""


@pytest.fixture
def place() -> Iterator[paths.LabPaths]:
    """A lab's directory with room for records and logs, at a path short enough for a lab."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        made = paths.LabPaths(Path(directory))
        made.run.mkdir()
        made.log.mkdir()
        yield made


@pytest.fixture
def supervisor(place: paths.LabPaths) -> Iterator[supervision.Supervisor]:
    """A supervisor whose components are ended afterwards."""
    made = supervision.Supervisor(place)
    yield made
    for path in place.run.glob("*.json"):
        record = supervision.read_record(place, path.stem)
        if record is not None:
            processes.end([record.identity], grace=1)
    made.reap()


def component(
    *argv: str, check: Callable[[], str] = health.nothing, seconds: float = 60, patience: float = 0.3
) -> components.Component:
    return components.Component(
        name="thing",
        argv=argv,
        check=check,
        start_seconds=seconds,
        recover_seconds=patience,
        stop_seconds=2,
    )


def server(path: Path, seconds: float = 60) -> components.Component:
    """A daemon that is healthy once it listens."""
    return component(
        sys.executable, "-c", SERVER, str(path), check=lambda: health.unix_socket(path), seconds=seconds
    )


class TestStart:
    def test_it_returns_once_the_component_serves(
        self, supervisor: supervision.Supervisor, tmp_path: Path
    ) -> None:
        """Not when it was started, but when its check is content."""
        thing = server(tmp_path / "s")
        supervisor.start(thing)
        assert thing.check() == ""
        assert supervisor.record("thing") is not None

    def test_it_runs_in_a_session_of_its_own(self, supervisor: supervision.Supervisor) -> None:
        """Closing the terminal that started it must not end it."""
        supervisor.start(component("sleep", "60"))
        record = supervisor.record("thing")
        assert record is not None
        assert os.getsid(record.pid) == record.pid

    def test_daemons_do_not_inherit_the_callers_environment(
        self, supervisor: supervision.Supervisor, place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A daemon behaves the same whoever starts it."""
        monkeypatch.setenv("SLURM_LEAK", "1")
        supervisor.start(component("sh", "-c", "env; sleep 60"))
        record = supervisor.record("thing")
        assert record is not None
        assert b"SLURM_LEAK" not in Path(f"/proc/{record.pid}/environ").read_bytes()

    def test_one_that_dies_shows_its_last_words(self, supervisor: supervision.Supervisor) -> None:
        """The person sees why, without looking for a log."""
        with pytest.raises(errors.LabError, match="thing ended with exit code 3 while starting") as caught:
            supervisor.start(component("sh", "-c", "echo cannot open key; exit 3", check=lambda: "not yet"))
        assert "cannot open key" in caught.value.hint

    def test_a_death_by_signal_is_called_so(self, supervisor: supervision.Supervisor) -> None:
        """A crash is not an exit code."""
        with pytest.raises(errors.LabError, match="ended by signal 11"):
            supervisor.start(component("sh", "-c", "kill -SEGV $$", check=lambda: "not yet"))

    def test_only_words_of_this_start_are_shown(
        self, supervisor: supervision.Supervisor, place: paths.LabPaths
    ) -> None:
        """Complaints of an earlier life would mislead."""
        place.component_log("thing").write_text("old trouble\n")
        with pytest.raises(errors.LabError) as caught:
            supervisor.start(component("sh", "-c", "echo new trouble; exit 1", check=lambda: "not yet"))
        assert "new trouble" in caught.value.hint
        assert "old trouble" not in caught.value.hint

    def test_a_full_disk_in_its_log_is_one_clear_line(self, supervisor: supervision.Supervisor) -> None:
        """A daemon's own words for it are many; ours are one."""
        with pytest.raises(errors.LabError, match="no space left on the lab's disk"):
            supervisor.start(
                component("sh", "-c", "echo write: No space left on device; exit 1", check=lambda: "not yet")
            )

    def test_unhealthy_component_is_reported_with_its_check(self, supervisor: supervision.Supervisor) -> None:
        """It runs, but does not serve."""
        with pytest.raises(errors.LabError, match=r"not ready after 0 s: no listener"):
            supervisor.start(component("sleep", "60", check=lambda: "no listener", seconds=0.2))

    def test_giving_up_ends_the_wait_at_once(self, supervisor: supervision.Supervisor) -> None:
        """Another component has failed: no reason to wait for this one."""
        threading.Timer(0.1, supervisor.cancel.set).start()
        with pytest.raises(errors.LabError, match="start aborted"):
            supervisor.start(component("sleep", "60", check=lambda: "not yet", seconds=30))

    def test_a_missing_program_names_its_package(self, supervisor: supervision.Supervisor) -> None:
        """Nobody should have to guess what to install."""
        with pytest.raises(errors.LabError, match="no-such-daemon is not installed"):
            supervisor.start(component("no-such-daemon"))

    def test_a_taken_port_is_named_with_its_holder(self, supervisor: supervision.Supervisor) -> None:
        """Port, component, and the process that has it."""
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            thing = components.Component(name="thing", argv=("true",), check=health.nothing, port=port)
            with pytest.raises(
                errors.LabError, match=rf"port {port} for thing is in use by .*pid {os.getpid()}"
            ):
                supervisor.start(thing)


class TestEnsure:
    def test_a_healthy_component_is_left_alone(self, supervisor: supervision.Supervisor) -> None:
        """Repairing must not disturb what works."""
        thing = component("sleep", "60")
        assert supervisor.ensure(thing)
        before = supervisor.record("thing")
        assert not supervisor.ensure(thing)
        assert supervisor.record("thing") == before

    def test_a_dead_one_is_started_again(self, supervisor: supervision.Supervisor) -> None:
        """However it died."""
        thing = component("sleep", "60")
        supervisor.start(thing)
        before = supervisor.record("thing")
        assert before is not None
        processes.send(before.identity, signal.SIGKILL)
        processes.wait_gone([before.identity], seconds=60)
        assert supervisor.ensure(thing)
        after = supervisor.record("thing")
        assert after is not None
        assert after.pid != before.pid

    def test_one_that_hangs_is_replaced(self, supervisor: supervision.Supervisor, tmp_path: Path) -> None:
        """Alive but not serving is not enough."""
        (tmp_path / "s").unlink(missing_ok=True)
        thing = server(tmp_path / "s")
        supervisor.start(thing)
        before = supervisor.record("thing")
        assert before is not None
        (tmp_path / "s").unlink()
        assert supervisor.ensure(thing)
        assert not processes.alive(before.identity)
        assert thing.check() == ""

    def test_one_that_recovers_by_itself_is_left_alone(self, supervisor: supervision.Supervisor) -> None:
        """Its peers were restarted a moment ago: no reason to restart it too."""
        supervisor.start(component("sleep", "60"))
        before = supervisor.record("thing")
        complaints = iter(["still waiting for slurmctld"])
        thing = component("sleep", "60", check=lambda: next(complaints, ""), patience=60)
        assert not supervisor.ensure(thing)
        assert supervisor.record("thing") == before

    def test_slow_component_is_kept_when_another_fails(self, supervisor: supervision.Supervisor) -> None:
        """A failed start must not stop what runs."""
        supervisor.start(component("sleep", "60"))
        before = supervisor.record("thing")
        supervisor.cancel.set()
        thing = component("sleep", "60", check=lambda: "no word yet", patience=60)
        with pytest.raises(errors.LabError, match="start aborted"):
            supervisor.ensure(thing)
        assert before is not None
        assert supervisor.record("thing") == before

    def test_reused_pid_is_never_signalled(
        self, supervisor: supervision.Supervisor, place: paths.LabPaths
    ) -> None:
        """The record's process is gone and its pid belongs to another process."""
        with subprocess.Popen(["sleep", "60"]) as stranger:
            try:
                record = supervision.Record(
                    pid=stranger.pid, start_ticks=1, boot_id=processes.boot_id(), started_at=0.0
                )
                place.component_record("thing").write_bytes(msgspec.json.encode(record))
                supervisor.stop(component("sleep", "60"))
                assert stranger.poll() is None
            finally:
                stranger.kill()


class TestStop:
    def test_it_ends_the_process_and_removes_the_record(
        self, supervisor: supervision.Supervisor, place: paths.LabPaths
    ) -> None:
        """Afterwards nothing says that it ever ran, but the log."""
        thing = component("sleep", "60")
        supervisor.start(thing)
        record = supervisor.record("thing")
        assert record is not None
        supervisor.stop(thing)
        assert not processes.alive(record.identity)
        assert not place.component_record("thing").exists()

    def test_stopping_what_does_not_run_is_fine(self, supervisor: supervision.Supervisor) -> None:
        """The result is the same."""
        supervisor.stop(component("sleep", "60"))
        assert supervisor.record("thing") is None


class TestRecords:
    def test_a_broken_record_is_no_record(self, place: paths.LabPaths) -> None:
        """Half a file after a crash must not stop a repair."""
        place.component_record("thing").write_text('{"pid": 1')
        assert supervision.read_record(place, "thing") is None

    def test_a_record_of_an_earlier_boot_is_no_record(self, place: paths.LabPaths) -> None:
        """After a restart of the machine pid and start time may both fit by chance."""
        me = processes.identify(os.getpid())
        assert me is not None
        record = supervision.Record(pid=me.pid, start_ticks=me.start_ticks, boot_id="earlier", started_at=0.0)
        place.component_record("thing").write_bytes(msgspec.json.encode(record))
        assert supervision.read_record(place, "thing") is None


def test_restart_waits_for_the_port(supervisor: supervision.Supervisor, tmp_path: Path) -> None:
    """A stopped daemon may hold its port for a moment longer."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    wanted = dataclasses.replace(server(tmp_path / "s"), port=listener.getsockname()[1])
    threading.Timer(0.5, listener.close).start()
    supervisor.start(wanted)
    assert supervisor.record("thing") is not None


def test_a_port_that_stays_taken_is_told(
    supervisor: supervision.Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the one who has it."""
    monkeypatch.setattr(supervision, "PORT_SECONDS", 0.1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        wanted = dataclasses.replace(server(tmp_path / "s"), port=listener.getsockname()[1])
        with pytest.raises(errors.LabError, match=rf"is in use by .*\(pid {os.getpid()}\)"):
            supervisor.start(wanted)


def test_the_collector_serves_once_it_holds_its_lock(place: paths.LabPaths) -> None:
    """Until then `lab up` is not done: on a busy machine the doctor, asked next, found no collector."""
    lab = spec.LabSpec(name="x", port_base=21000, user="daemon", user_created=False)
    every = {one.name: one for one in components.all_components(place, lab)}
    collector = every[components.COLLECTOR]
    place.attempts.mkdir()
    assert collector.check() == "does not hold its lock"
    descriptor = presence.hold(place.attempts / wellknown.COLLECTOR_LOCK)
    assert collector.check() == ""
    os.close(descriptor)
    assert collector.check() == "does not hold its lock"
