"""What tests see of the machine's programs: what their make target installs, and what they declare."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from scripts import bootstrap, fence

from penstock import wellknown
from tests import nested

SUITE = """
import shutil, subprocess
import pytest

pytest_plugins = ("tests.programs",)

def test_undeclared():
    subprocess.run(["penstock-outsider"], check=True)

@pytest.mark.needs("penstock-outsider")
def test_declared():
    subprocess.run(["penstock-outsider"], check=True)

def test_after_it():
    assert shutil.which("penstock-outsider") is None

@pytest.mark.needs("penstock-nowhere", package="penstock-something")
def test_missing():
    assert False
"""


def package(
    name: str, *depends: tuple[str, ...], provides: tuple[str, ...] = (), everywhere: bool = False
) -> fence.Package:
    return fence.Package(name, everywhere, provides, depends)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """The suite above, on a machine that has one program more than `make test` installs."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "penstock-outsider").write_text("#!/bin/sh\nexit 0\n")
    (folder / "penstock-outsider").chmod(0o755)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    (folder / "test_tiny.py").write_text(SUITE)
    argv = ["-m", "scripts.run_tests", "--strict", "-rA", "--numprocesses=1", str(folder)]
    env = os.environ | {"PATH": f"{os.environ['PATH']}:{folder}"}
    return nested.run(argv, environment=env, seconds=120)


def test_a_program_that_is_not_declared_is_not_there(result: subprocess.CompletedProcess[str]) -> None:
    """Although this machine has it."""
    assert result.returncode == 1
    assert re.search(r"^FAILED \S+::test_undeclared", result.stdout, re.MULTILINE)
    assert "FileNotFoundError: [Errno 2] No such file or directory: 'penstock-outsider'" in result.stdout


def test_a_program_that_is_declared_is_there_for_that_test(result: subprocess.CompletedProcess[str]) -> None:
    """And for no other."""
    assert re.findall(r"^PASSED \S+::(\w+)", result.stdout, re.MULTILINE) == [
        "test_declared",
        "test_after_it",
    ]


def test_a_declared_program_that_is_missing_is_named_with_its_package(
    result: subprocess.CompletedProcess[str],
) -> None:
    """Skipped in words."""
    assert "needs the program penstock-nowhere (Debian package penstock-something)" in result.stdout
    assert "1 failed, 2 passed, 1 skipped" in result.stdout


@pytest.mark.needs("dpkg-query", package="dpkg")
@pytest.mark.parametrize("program", ["sh", "awk", "mount", "slurmctld", "scontrol", "munged", "busybox"])
def test_programs_of_the_targets_packages_are_there(program: str) -> None:
    """With those of what they depend on, of every Debian's, and of alternatives."""
    path = f"{os.environ.get(fence.OUTSIDE, '')}:{os.environ['PATH']}"
    wanted = bootstrap.PROGRAMS | bootstrap.TEST_PROGRAMS
    if shutil.which(program, path=path) is None:
        pytest.skip(f"{program} is not installed")
    assert program in fence.visible(wanted, path)


@pytest.mark.parametrize(
    "program", ["containerd", "runc", "docker-registry", "go", "git", "gcc", "cc", "make"]
)
def test_programs_of_other_targets_are_out_of_sight(program: str) -> None:
    """Of this very run, where scripts/run_tests.py started it for `make test`."""
    if fence.OUTSIDE not in os.environ or "PENSTOCK_TEST_KUBERNETES" in os.environ:
        pytest.skip("only `make test` has a PATH of its own")
    assert shutil.which(program) is None


def test_dependencies_are_followed() -> None:
    """Choices by the first that is installed, names that others provide, circles."""
    known = {
        each.name: each
        for each in (
            package("base", everywhere=True),
            package("server", ("lib",), ("mta", "postfix"), ("absent", "second")),
            package("lib", ("server",)),
            package("exim", provides=("mta",)),
            package("postfix"),
            package("second"),
            package("stranger", ("server",)),
        )
    }
    assert fence.closure(known, ["server"]) == {"base", "server", "lib", "exim", "second"}
    assert fence.closure(known, ["not installed"]) == {"base"}


def test_a_line_of_dpkg_query_is_understood() -> None:
    """Versions and architectures are not part of a name."""
    found = fence.parse("x", "no", "required", "v (= 1), w", ", libc6:any (>= 2.34), a | b (<< 3)")
    assert found == package("x", ("libc6",), ("a", "b"), provides=("v", "w"), everywhere=True)
    assert not fence.parse("x", "no", "optional", "", ", ").is_everywhere


def test_without_dpkg_everything_is_visible_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another distribution: no fence, in words."""
    monkeypatch.setattr(fence, "PLACES", ())
    with fence.restricted({}, {"PATH": str(tmp_path)}) as environment:
        assert environment == {"PATH": str(tmp_path)}
    assert "no dpkg: tests see all programs" in capsys.readouterr().out


@pytest.mark.needs("dpkg-query", package="dpkg")
def test_the_links_go_with_the_run(tmp_path: Path) -> None:
    """A program that is named is there wherever it comes from; their folder is open to all, and goes."""
    program = tmp_path / "penstock-own"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = f"{os.environ['PATH']}:{tmp_path}"
    with fence.restricted({"penstock-own": "own-package"}, {"PATH": path}) as environment:
        folder = Path(environment["PATH"])
        assert (folder / "penstock-own").resolve() == program
        assert folder.stat().st_mode & 0o777 == 0o755
        assert environment[wellknown.ENV_LAB_PATH] == str(folder)
    assert not folder.exists()
