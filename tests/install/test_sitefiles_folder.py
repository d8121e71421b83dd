"""`penstock render --out`: files have the modes of the installed ones, and nothing is written outside."""

from __future__ import annotations

import stat
from pathlib import Path

import click.testing
import pytest
from tests.install import sites
from tests.install.test_sitefiles import WHOLE

from penstock import errors
from penstock.cli import sites as command
from penstock.install import facts


@pytest.fixture
def site_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site with a password in slurmdbd.conf that needs no live cluster."""
    text = sites.GOOD.read_text()
    for old, new in WHOLE:
        text = text.replace(old, new)
    monkeypatch.setattr(facts, "gather", sites.known)
    path = tmp_path / "site.yaml"
    path.write_text(text)
    return path


def render(site_file: Path, out: Path) -> click.testing.Result:
    argv = ["--site", str(site_file), "--out", str(out)]
    return click.testing.CliRunner().invoke(command.render, argv, catch_exceptions=False)


def test_password_is_readable_by_its_owner_only(site_file: Path, tmp_path: Path) -> None:
    """Whatever was there before."""
    out = tmp_path / "deep" / "out"
    for _ in range(2):
        done = render(site_file, out)
        found = {path.relative_to(out): path for path in out.rglob("*") if path.is_file()}
        assert done.output == f"Wrote {len(found)} files to {out}.\n"
        secret = out / "etc/slurm/slurmdbd.conf"
        assert "from a file" in secret.read_text()
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        assert stat.S_IMODE((out / "etc/slurm/slurm.conf").stat().st_mode) == 0o644
        assert "kind: ClusterRole\n" in (out / "kubernetes.yaml").read_text()
        secret.chmod(0o644)


def test_symlink_in_place_of_a_file_is_replaced(site_file: Path, tmp_path: Path) -> None:
    """Its target is untouched."""
    mine = tmp_path / "mine"
    mine.write_text("precious")
    place = tmp_path / "out" / "etc" / "slurm" / "slurmdbd.conf"
    place.parent.mkdir(parents=True)
    place.symlink_to(mine)
    render(site_file, tmp_path / "out")
    assert mine.read_text() == "precious"
    assert not place.is_symlink()


def test_symlink_in_place_of_a_folder_is_refused(site_file: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "etc").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.UsageError, match="out/etc is a link"):
        render(site_file, tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_out_may_be_a_symlink_itself(site_file: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    assert render(site_file, tmp_path / "out").exit_code == 0
    assert (tmp_path / "real" / "kubernetes.yaml").exists()


def test_unwritable_file_is_reported_in_one_line(site_file: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "etc").write_text("")
    with pytest.raises(errors.UsageError, match=r"cannot write .*out/etc.*: File exists"):
        render(site_file, tmp_path / "out")
