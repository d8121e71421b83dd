"""How failures are run again: the runner itself, on tiny suites of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import reruns

from tests import nested

UNLUCKY = """
from pathlib import Path
import pytest

def test_lucky():
    pass

@pytest.mark.parametrize("name", ["a b", "[x]::y"])
def test_unlucky(name, request):
    seen = Path(__file__).with_name("seen-" + name.strip("[]:xy"))
    if not seen.exists():
        seen.touch()
        assert False, "the moon was full"
"""
FIXTURE = """
from pathlib import Path
import pytest

@pytest.fixture
def unlucky():
    yield
    seen = Path(__file__).with_name("seen")
    if not seen.exists():
        seen.touch()
        raise RuntimeError("left something behind")

def test_with_fixture(unlucky):
    pass
"""
ENDLESS = """
from pathlib import Path
import time
import pytest

@pytest.fixture
def lab():
    yield
    Path(__file__).with_name("down").touch()

def test_endless(lab):
    time.sleep(60)
"""
BROKEN = "def test_broken():\n    assert 1 == 2\n"


def run(folder: Path, text: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The runner on a file of tests, as make calls it."""
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    (folder / "test_tiny.py").write_text(text)
    kept = {name: value for name, value in os.environ.items() if name != "STRICT"}
    argv = ["-m", "scripts.run_tests", "--numprocesses=1", *options, str(folder)]
    return nested.run(argv, environment=kept | variables, seconds=120)


def under(heading: str, text: str) -> str:
    """What stands between a heading and the next."""
    return text.partition(f" penstock: {heading} ")[2].partition(" penstock: ")[0]


def test_a_test_that_passes_alone_leaves_the_run_green_and_is_named(tmp_path: Path) -> None:
    """With what it said the first time; names with spaces and colons are found again, too."""
    result = run(tmp_path, UNLUCKY)
    assert result.returncode == 0, result.stdout + result.stderr
    said = under("passed only when run again", result.stdout)
    assert said.count("AssertionError: the moon was full") == 2
    assert "test_tiny.py::test_unlucky[a b]" in said
    assert "test_lucky" not in said
    assert "passed: of 2 rerun, 0 failed twice" in result.stdout


def test_a_fixture_that_fails_once_is_forgiven_and_named(tmp_path: Path) -> None:
    """What a test leaves behind may be bad luck, too."""
    result = run(tmp_path, FIXTURE)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "left something behind" in under("passed only when run again", result.stdout)


def test_a_test_that_fails_twice_is_red(tmp_path: Path) -> None:
    """And is told from one that was unlucky."""
    result = run(tmp_path, UNLUCKY + BROKEN)
    assert result.returncode == 1
    assert "test_broken" in under("failed twice", result.stdout)
    assert "test_unlucky" not in under("failed twice", result.stdout)
    assert "test_unlucky" in under("passed only when run again", result.stdout)
    assert "FAILED: of 3 rerun, 1 failed twice" in result.stdout


@pytest.mark.parametrize("how", [("--strict", {}), ("-q", {"STRICT": "1"})], ids=["option", "variable"])
def test_strict_runs_nothing_again(tmp_path: Path, how: tuple[str, dict[str, str]]) -> None:
    """`make test STRICT=1`: bad luck is red."""
    result = run(tmp_path, UNLUCKY, how[0], **how[1])
    assert result.returncode == 1
    assert "run again" not in result.stdout
    assert "rerun" not in result.stdout


def test_more_than_bad_luck_is_red_at_once(tmp_path: Path) -> None:
    """Thirteen that would all pass alone."""
    many = UNLUCKY.replace('["a b", "[x]::y"]', "list(map(str, range(13)))")
    result = run(tmp_path, many)
    assert result.returncode == 1
    assert "no rerun: 13 failures, at most 12 are" in result.stdout
    assert "again, alone" not in result.stdout


def test_a_file_that_cannot_be_read_is_red(tmp_path: Path) -> None:
    """Its tests did not run at all."""
    result = run(tmp_path, "import nothing_of_that_name\n")
    assert result.returncode == 1
    assert "no rerun: a test file cannot be collected" in result.stdout


def test_no_tests_are_no_success(tmp_path: Path) -> None:
    """pytest's own verdict stands."""
    assert run(tmp_path, "").returncode == 5


def test_a_worker_that_dies_is_run_again_alone(tmp_path: Path) -> None:
    """A crash of a process takes one test with it, not the run."""
    result = run(tmp_path, UNLUCKY.replace('assert False, "the moon was full"', "__import__('os')._exit(9)"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "crashed" in under("passed only when run again", result.stdout)


def test_one_that_never_ends_alone_has_failed_and_tidies_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is bounded; its fixtures are taken down all the same."""
    monkeypatch.setattr(reruns, "AGAIN_SECONDS", 3.0)
    (tmp_path / "test_tiny.py").write_text(ENDLESS)
    failure = reruns.Failure(str(tmp_path / "test_tiny.py"), "endless", "", is_a_test=True)
    assert not reruns.passes_alone(failure, os.environ | {nested.TEMPORARY: str(tmp_path)})
    assert (tmp_path / "down").exists()


def test_one_that_cannot_be_interrupted_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing keeps the run from its end."""
    monkeypatch.setattr(reruns, "TIDY_SECONDS", 0.2)
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)"
    assert reruns.wait([sys.executable, "-c", deaf], os.environ, 1.0) == -signal.SIGKILL


def test_a_signal_reaches_the_tests_and_nothing_is_run_again(tmp_path: Path) -> None:
    """Whoever stops the run stops all of it."""
    text = "import time\ndef test_long():\n    print('up', flush=True)\n    time.sleep(60)\n"
    (tmp_path / "test_tiny.py").write_text(text)
    code = "import os, sys; from scripts import reruns; reruns.run(sys.argv[1:], environment=os.environ)"
    argv = [sys.executable, "-c", code, "-s", str(tmp_path)]
    env = os.environ | {nested.TEMPORARY: str(tmp_path)}
    with subprocess.Popen(argv, cwd=nested.ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any("up" in line for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(60) == 128 + signal.SIGTERM
    assert "again, alone" not in rest
