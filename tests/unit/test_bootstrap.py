"""What the Makefile's targets install, and what they leave alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scripts import bootstrap, check_sizes

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


def test_requirements_are_pinned_with_hashes_and_name_no_place() -> None:
    """Every line of the pinned files is an exact version with a hash; none says where it was found."""
    for name in ("build", "runtime", "dev"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        pinned = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert all("==" in line and line.endswith("\\") for line in pinned), name
        assert "http:" not in text
        assert "https:" not in text


@pytest.mark.parametrize(("lines", "complaints"), [(500, 0), (501, 1)])
def test_a_file_may_have_five_hundred_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int, complaints: int
) -> None:
    """And not one more."""
    monkeypatch.setattr(check_sizes, "ROOT", tmp_path)
    path = tmp_path / "f.py"
    path.write_text("x = 1\n" * lines)
    assert len(list(check_sizes.check(path))) == complaints


def test_an_environment_of_somebody_elses_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After `sudo make demo`, a user with other requirements: one line that says what to do."""
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(SystemExit):
        bootstrap.make_venv(requirements=("build", "runtime"))
    assert f"{tmp_path} is somebody else's" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
