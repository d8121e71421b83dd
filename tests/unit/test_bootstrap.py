"""What the Makefile's targets install, and what they leave alone."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripts import bootstrap, check_sizes, rights

from penstock import wellknown

ROOT = Path(bootstrap.__file__).resolve().parent.parent


def test_only_missing_programs_packages_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that is there, wherever it came from, needs no package."""
    (tmp_path / "munged").write_text("#!/bin/sh\n")
    (tmp_path / "munged").chmod(0o755)
    monkeypatch.setattr(bootstrap, "SEARCH", str(tmp_path))
    programs = {"munged": "munge", "slurmd": "slurmd", "slurmstepd": "slurmd"}
    assert bootstrap.missing_packages(programs) == ["slurmd"]


def test_without_apt_the_packages_are_named(tmp_path: Path) -> None:
    """One line, exit 1, nothing done."""
    load = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
    code = f"{load}\nfrom scripts import bootstrap; bootstrap.install(['munge'])"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert result.stdout == "penstock: there is no apt-get here; install what Debian calls: munge\n"


def test_services_stay_off_while_packages_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """policy-rc.d says no, and is gone afterwards, also when installing failed."""
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(bootstrap, "POLICY", policy)

    def fail_halfway() -> None:
        with bootstrap.no_services_started():
            assert subprocess.run([str(policy)], check=False, timeout=60).returncode == 101
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert not policy.exists()


def test_a_hosts_own_policy_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has decided already keeps the decision."""
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 0\n")
    monkeypatch.setattr(bootstrap, "POLICY", policy)
    with bootstrap.no_services_started():
        assert policy.read_text() == "#!/bin/sh\nexit 0\n"
    assert policy.exists()


def test_what_a_killed_run_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ours by its words, and would keep the host's services from starting for ever."""
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(bootstrap, "POLICY", policy)
    policy.write_bytes(bootstrap.POLICY_TEXT)
    with bootstrap.no_services_started():
        assert subprocess.run([str(policy)], check=False, timeout=60).returncode == 101
    assert not policy.exists()


def test_a_containers_own_policy_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ubuntu's image has one that says the same."""
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    monkeypatch.setattr(bootstrap, "POLICY", policy)
    with bootstrap.no_services_started():
        pass
    assert policy.read_text() == "#!/bin/sh\nexit 101\n"


class Installing:
    """bootstrap.py in a process of its own, with an apt-get that takes as long as the test lets it."""

    def __init__(self, folder: Path, *, hears: bool = False, hangup: str = "SIG_DFL") -> None:
        self.policy = folder / "policy-rc.d"
        self.began, self.go, self.ended = (folder / name for name in ("began", "go", "ended"))
        apt = folder / "apt-get"
        apt.write_text(
            f"#!/bin/sh\ntrap {'-' if hears else repr('')} HUP\ntouch {self.began}\n"
            f"until [ -e {self.go} ]; do sleep 0.05; done\n[ -e {self.policy} ] && touch {self.ended}\n"
        )
        apt.chmod(0o755)
        code = (
            f"import pathlib, signal, sys; signal.signal(signal.SIGHUP, signal.{hangup})\n"
            f"sys.path.insert(0, {str(ROOT)!r}); sys.dont_write_bytecode = True\n"
            f"from scripts import bootstrap\nbootstrap.POLICY = pathlib.Path({str(self.policy)!r})\n"
            "bootstrap.os.geteuid = lambda: 0\nbootstrap.install(['nothing'])"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(self, path: Path) -> None:
        deadline = time.monotonic() + 30
        while not path.exists():
            assert time.monotonic() < deadline, path
            time.sleep(0.02)

    def wait_for_words(self, words: str) -> None:
        assert self.process.stdout is not None
        said, deadline = b"", time.monotonic() + 30
        while words.encode() not in said:
            assert time.monotonic() < deadline, said
            if select.select([self.process.stdout], [], [], 1)[0]:
                said += os.read(self.process.stdout.fileno(), 1000)

    def end(self) -> int:
        self.go.touch()
        self.process.communicate(timeout=30)
        return self.process.returncode


@pytest.fixture
def installing(tmp_path: Path) -> Iterator[Callable[..., Installing]]:
    """Starts them, and leaves none behind."""
    made: list[Installing] = []

    def start(*, hears: bool = False, hangup: str = "SIG_DFL") -> Installing:
        made.append(Installing(tmp_path, hears=hears, hangup=hangup))
        return made[-1]

    yield start
    (tmp_path / "go").touch()
    for each in made:
        each.process.kill()
        each.process.communicate(timeout=30)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_stop_tidies_up(
    installing: Callable[..., Installing], number: signal.Signals
) -> None:
    """Once apt-get has ended: a package that is being set up starts no service behind our back."""
    run = installing()
    run.wait_for(run.began)
    for _ in range(2):
        run.process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            run.process.wait(0.5)
    assert run.end() == 128 + number
    assert run.ended.exists()
    assert not run.policy.exists()


def test_an_apt_get_that_only_fetches_is_not_waited_for(installing: Callable[..., Installing]) -> None:
    """It ends on the signal that it is passed."""
    run = installing(hears=True)
    run.wait_for(run.began)
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(30) == 128 + signal.SIGTERM
    assert not run.policy.exists()


def test_under_nohup_a_hangup_stops_nothing(installing: Callable[..., Installing]) -> None:
    """Whoever has closed the terminal finds the packages installed."""
    run = installing(hangup="SIG_IGN")
    run.wait_for(run.began)
    run.process.send_signal(signal.SIGHUP)
    assert run.end() == 0
    assert not run.policy.exists()


def test_two_runs_wait_for_each_other(installing: Callable[..., Installing]) -> None:
    """The second neither takes the first's policy for a left one nor goes on without."""
    first = installing()
    first.wait_for(first.began)
    second = installing()
    second.wait_for_words("by another call: waiting for it")
    assert first.policy.exists()
    assert (first.end(), second.end()) == (0, 0)
    assert not first.policy.exists()


def test_requirements_are_pinned_with_hashes_and_name_no_place() -> None:
    """Every line of the pinned files is an exact version with a hash; none says where it was found."""
    for name in ("build", "runtime", "dev"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        pinned = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert all("==" in line and line.endswith("\\") for line in pinned), name
        assert "http:" not in text
        assert "https:" not in text


@pytest.mark.parametrize(("lines", "complaints"), [(400, 0), (401, 1)])
def test_files_have_at_most_400_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int, complaints: int
) -> None:
    """The limit itself is allowed."""
    monkeypatch.setattr(check_sizes, "ROOT", tmp_path)
    path = tmp_path / "f.py"
    path.write_text("x = 1\n" * lines)
    assert len(list(check_sizes.check(path))) == complaints


def test_environment_of_another_user_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After `sudo make demo`, a user with other requirements: one line that says what to do."""
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(SystemExit):
        bootstrap.make_venv(requirements=("build", "runtime"))
    assert f"{tmp_path} belongs to another user" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("python", ["#!/bin/sh\necho No module named pip >&2; exit 1\n", ""])
def test_an_environment_that_cannot_install_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    """The host's Python has moved on, or the link to it leads nowhere: pip's file is there all the same."""
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "pip").touch()
    if python:
        (folder / "python").write_text(python)
        (folder / "python").chmod(0o755)
    ran: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "run", lambda argv, environment: ran.append(argv))
    bootstrap.make_venv(requirements=("build", "runtime"))
    assert ran[0][1:4] == ["-m", "venv", "--clear"]


def test_a_new_release_of_a_dependency_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is pinned is installed, nothing is resolved; a gap in the pins is an error."""
    ran: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "run", lambda argv, environment: ran.append(argv))
    bootstrap.fill_venv([tmp_path / "dev.txt"], ("dev",))
    installs = [argv for argv in ran if "install" in argv]
    assert all("--no-deps" in argv for argv in installs)
    assert ["--require-hashes" in argv for argv in installs] == [True, False]
    assert ran[-1][-1] == "check"


def test_two_calls_do_not_fill_one_environment_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make test` beside `make demo`: the second waits, and finds nothing to do."""
    (tmp_path / "requirements").mkdir()
    for name in ("build", "runtime"):
        (tmp_path / "requirements" / f"{name}.txt").touch()
    busy, most, filled = 0, 0, []

    def fill(files: list[Path], requirements: tuple[str, ...]) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        time.sleep(0.2)
        (tmp_path / ".venv").mkdir(exist_ok=True)
        filled.append(requirements)
        busy -= 1

    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "fill_venv", fill)
    calls = [
        threading.Thread(target=bootstrap.make_venv, kwargs={"requirements": ("build", "runtime")})
        for _ in range(2)
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join(30)
    assert (most, len(filled)) == (1, 1)


def test_root_tests_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """sudo drops what it is not told to keep, and the tests would be green on the machine's own Slurm."""
    became: list[list[str]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "execvp", lambda program, argv: became.append(argv))
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    rights.become_root("scripts.run_tests", ["tests"], why="tests")
    kept = became[0][1].removeprefix("--preserve-env=").split(",")
    named = {value for name, value in vars(wellknown).items() if name.startswith("ENV_TEST_")}
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    asked = set(re.findall(r'"(PENSTOCK_(?:TEST_[A-Z_]+|EXPLORE))"', "\n".join(texts)))
    assert {"PENSTOCK_TEST_CRASH", "PENSTOCK_EXPLORE"} <= asked
    assert named | asked | {wellknown.ENV_CACHE} <= set(kept)
