"""`penstock lab` as typed: options, exit codes, and one clear line for every mistake."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click import testing
from rich import console

from penstock_lab import (
    accounts,
    actions,
    bringup,
    components,
    health,
    paths,
    ports,
    processes,
    progress,
    spec,
    state,
    subprocesses,
    supervision,
)
from penstock_lab.cli import lab as command

LAB = spec.LabSpec(name="x", port_base=21000, user="alice", user_created=False, nodes=1, bridge=False)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[paths.LabPaths]:
    """A lab's directory with nothing running, and no other lab in the environment."""
    monkeypatch.delenv("PENSTOCK_LAB", raising=False)
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        made = paths.LabPaths(Path(directory).resolve())
        made.run.mkdir()
        spec.save(made, LAB)
        yield made


def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The real program, as this user."""
    argv = [sys.executable, "-m", "penstock", "lab", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("status", "--name", "No!"), "'No!' is not a valid lab name"),
            (("status", "--dir", "/x" * 40), "is longer than 64 bytes"),
            (("env", "--dir", "/my lab"), "may hold only letters"),
            (("up", "--nodes", "0"), "0 is not in the range"),
            (("up", "--gpus", "many"), "is not a valid integer"),
            (("nonsense",), "No such command 'nonsense'"),
        ],
    )
    def test_usage_errors_are_exit_code_2(self, arguments: tuple[str, ...], said: str) -> None:
        """And never a traceback."""
        result = penstock(*arguments)
        assert result.returncode == 2
        assert said in result.stderr
        assert "Traceback" not in result.stderr

    def test_no_lab_is_exit_code_3(self, tmp_path: Path) -> None:
        """Scripts can tell it from a broken one."""
        result = penstock("status", "--dir", "/not-there")
        assert result.returncode == 3
        assert result.stderr.startswith("penstock: there is no lab in /not-there")


class TestStatus:
    def test_a_stopped_lab_is_not_healthy(self, place: paths.LabPaths) -> None:
        """Every component is listed, none runs, exit code 1."""
        result = testing.CliRunner().invoke(
            command.lab, ["status", "--dir", str(place.directory), "--format", "json"]
        )
        assert result.exit_code == 1
        shown = json.loads(result.stdout)
        assert not shown["healthy"]
        assert {(part["state"], part["health"], part["pid"]) for part in shown["components"]} == {
            ("stopped", "not running", None)
        }

    def test_the_table_has_a_line_for_each(self, place: paths.LabPaths) -> None:
        """The same for people."""
        result = testing.CliRunner().invoke(command.lab, ["status", "--dir", str(place.directory)])
        assert result.exit_code == 1
        for name in ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd-n1"):
            assert name in result.stdout

    @pytest.mark.parametrize(
        ("problem", "complaint", "shown"),
        [("", "", "ok"), ("does not answer", "drained", "does not answer"), ("", "drained", "drained")],
    )
    def test_health_problem_comes_before_complaint(
        self, place: paths.LabPaths, problem: str, complaint: str, shown: str
    ) -> None:
        """Failed checks come before problems that a restart would not fix."""
        me = processes.identify(os.getpid())
        assert me is not None
        record = supervision.Record(
            pid=me.pid, start_ticks=me.start_ticks, boot_id=processes.boot_id(), started_at=time.time()
        )
        place.component_record("thing").write_bytes(msgspec.json.encode(record))
        thing = components.Component(
            name="thing", argv=("x",), check=lambda: problem, complaint=lambda: complaint
        )
        now = state.component_state(place, thing)
        assert (now.state, now.pid, now.health, now.healthy) == ("running", me.pid, shown, shown == "ok")
        assert now.memory_mb > 1


class TestEnv:
    def test_it_prints_lines_for_a_shell(self, place: paths.LabPaths) -> None:
        """And nothing else on stdout."""
        result = testing.CliRunner().invoke(command.lab, ["env", "--dir", str(place.directory)])
        assert result.exit_code == 0
        assert all(line.startswith("export ") for line in result.stdout.splitlines())
        assert f"export PENSTOCK_LAB={place.directory}\n" in result.stdout


class TestDown:
    def test_no_lab_is_nothing_to_do(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Twice is fine."""
        monkeypatch.setattr(paths, "MAX_DIRECTORY_BYTES", 1000)
        assert not actions.take_down(paths.LabPaths(tmp_path / "lab"))


class TestUp:
    def test_up_passes_options_and_prints_next_steps(
        self, place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The options, and three lines at the end."""
        asked: list[bringup.Wishes] = []

        def fake(where: paths.LabPaths, wishes: bringup.Wishes, **_: object) -> spec.LabSpec:
            asked.append(wishes)
            return LAB

        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(bringup, "bring_up", fake)
        options = ["--nodes", "1", "--gpus", "0", "--memory-gb", "64", "--port-base", "21000"]
        result = testing.CliRunner().invoke(command.lab, ["up", "--dir", str(place.directory), *options])
        assert result.exit_code == 0, result.output
        assert asked[0].given() == {"nodes": 1, "gpus": 0, "memory_gb": 64, "port_base": 21000}
        lines = result.stdout.splitlines()
        assert len(lines) == 3
        assert f'eval "$(penstock lab env --dir {place.directory})"' in lines[1]
        assert f"penstock lab down --dir {place.directory}" in lines[2]


class TestProgress:
    def test_plain_lines_say_what_was_done_and_how_long_it_took(self) -> None:
        """For logs and pipes."""
        out = io.StringIO()
        plain = progress.PlainLines(console.Console(file=out))
        plain.began("munged")
        plain.ended("munged", "started [x]", 0.27)
        assert out.getvalue() == "munged           started [x] (0.3 s)\n"

    def test_moving_lines_end_with_every_step_done(self) -> None:
        """For terminals."""
        bars = progress.bars(console.Console(file=io.StringIO(), force_terminal=True))
        moving = progress.MovingLines(bars)
        for name in ("munged", "mariadbd"):
            moving.began(name)
        moving.ended("munged", "started", 0.1)
        assert [task.finished for task in bars.tasks] == [True, False]


class FakeAccounting:
    """sacctmgr as far as the lab uses it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pairs: list[str] = []
        self.added: list[tuple[str, ...]] = []
        monkeypatch.setattr(subprocesses, "run", self.run)

    def run(self, argv: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[str]:
        words = [word for word in argv[1:] if not word.startswith("--")]
        if words[0] == "add":
            self.added.append(tuple(words[1:]))
        return subprocess.CompletedProcess(argv, 0, "".join(f"{pair}\n" for pair in self.pairs), "")


class TestAccounts:
    def test_a_new_lab_gets_cluster_accounts_and_users(
        self, place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In the order in which they depend on each other."""
        fake = FakeAccounting(monkeypatch)
        accounts.register(place, LAB)
        assert [words[:2] for words in fake.added] == [
            ("cluster", "x"),
            ("account", "research,teaching"),
            ("user", "alice,root"),
        ]

    def test_a_second_time_nothing_is_added(
        self, place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A repair asks once and is done."""
        fake = FakeAccounting(monkeypatch)
        fake.pairs = ["root|", "root|root", "research|", "research|alice", "research|root", "teaching|"]
        accounts.register(place, LAB)
        assert fake.added == []

    def test_only_missing_users_are_added(
        self, place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One user was removed."""
        fake = FakeAccounting(monkeypatch)
        fake.pairs = ["root|", "root|root", "research|", "research|root", "teaching|"]
        accounts.register(place, LAB)
        assert fake.added == [("user", "alice", "account=research")]


class TestHealth:
    def test_socket_without_listener(self, tmp_path: Path) -> None:
        """Reported with the error."""
        assert "does not answer on its socket" in health.unix_socket(tmp_path / "s")

    @pytest.mark.parametrize(
        ("sinfo", "healthy", "drained"),
        [
            ("idle", True, False),
            ("mixed", True, False),
            ("allocated", True, False),
            ("drained", True, True),
            ("draining", True, True),
            ("down", False, False),
            ("idle*", False, False),
            ("unknown", False, False),
            ("down*", False, False),
        ],
    )
    def test_states_of_nodes(
        self, place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch, sinfo: str, healthy: bool, drained: bool
    ) -> None:
        """A drained node serves what runs on it; one that does not answer serves nothing."""
        answer = subprocess.CompletedProcess((), 0, f"{sinfo}\n{sinfo}\n", "")
        monkeypatch.setattr(subprocesses, "run", lambda *_, **__: answer)
        monkeypatch.setattr(ports, "is_listening", lambda port: True)
        assert (health.node(place, "n1", 1) == "") is healthy
        assert (health.drained(place, "n1") != "") is drained
