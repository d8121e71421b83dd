"""Facts about the installed Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import errors
from penstock.install import facts
from penstock.slurm import controller


@pytest.fixture
def no_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH without slurmctld, and an empty folder of daemons."""
    (tmp_path / "sbin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(controller, "DAEMON_PATH", str(tmp_path / "sbin"))
    return tmp_path / "sbin"


def test_release_is_found_without_sbin_in_path(no_programs: Path) -> None:
    """Ordinary users of `penstock nodes` have no /usr/sbin in their PATH."""
    program = no_programs / "slurmctld"
    program.write_text("#!/bin/sh\necho slurm-wlm 24.11.3\n")
    program.chmod(0o755)
    assert facts.installed_release() == (24, 11)


def test_unknown_release_must_be_in_the_site_file(no_programs: Path) -> None:
    with pytest.raises(errors.UsageError, match="does not tell Slurm's release") as caught:
        facts.installed_release()
    assert 'release: "22.05"' in caught.value.hint
