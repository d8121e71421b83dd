"""The doctor runs as root on a NAS that users can write to, and must not follow their symlinks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.doctor import checks, penstock_side
from penstock.doctor.live import Live
from tests.install import sites

CHECKS = {check.name: check for check in penstock_side.registry}


@pytest.fixture
def nas(tmp_path: Path) -> Path:
    """A folder that everybody may write, like /tmp."""
    made = tmp_path / "nas"
    made.mkdir()
    made.chmod(0o1777)
    return made


@pytest.fixture
def live(nas: Path) -> Live:
    return Live(sites.site(("path: /nas\n", f"path: {nas}\n")))


def run(live: Live, name: str, *, fix: bool = False) -> list[tuple[str, str]]:
    return [(each.status, each.message) for each in checks.run([CHECKS[name]], live, fix=fix)]


def test_probe_file_is_not_created_through_a_symlink(live: Live, nas: Path, tmp_path: Path) -> None:
    """A predictable name would let a user make root create any file."""
    (nas / f".penstock-doctor-{os.getpid()}").symlink_to(tmp_path / "made-by-root")
    assert run(live, "nas") == [("ok", "")]
    assert not (tmp_path / "made-by-root").exists()
    assert len(list(nas.iterdir())) == 1, "nothing is left of the probe"


def test_nas_that_cannot_be_written_is_reported(
    live: Live, nas: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    assert run(live, "nas") == [("failed", f"{nas} cannot be written: No space left on device")]


def test_readme_is_not_written_through_a_symlink(live: Live, nas: Path, tmp_path: Path) -> None:
    """The drop folder itself may be a user's symlink while it has not been created yet."""
    private = tmp_path / "private"
    private.mkdir()
    assert live.site.nas is not None
    (nas / live.site.nas.drop).symlink_to(private)
    ((status, message),) = run(live, "drop-readme", fix=True)
    assert status == "failed"
    assert "not fixed" in message
    assert list(private.iterdir()) == []


def test_readme_is_written_readable_for_everybody(live: Live, nas: Path) -> None:
    assert live.site.nas is not None
    folder = nas / live.site.nas.drop
    folder.mkdir()
    assert run(live, "drop-readme", fix=True)[0][0] == "ok"
    (readme,) = folder.iterdir()
    assert readme.stat().st_mode & 0o777 == 0o644
    assert run(live, "drop-readme") == [("ok", "")]
