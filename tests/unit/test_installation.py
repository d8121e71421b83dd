"""`jobs`, `show`, `results` and `logs` use the site of $PENSTOCK_SITE, or the installed one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock import errors, wellknown
from penstock.views import installation
from tests.install import sites

VARIABLES = (wellknown.ENV_SITE, wellknown.ENV_SOCKET, wellknown.ENV_RESULTS, wellknown.ENV_SLURM_CONF)


@pytest.fixture(autouse=True)
def nothing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(wellknown, "SITE_FILE", str(tmp_path / "none" / "site.yaml"))


def found() -> tuple[str, str, str]:
    return installation.slurm_conf(), installation.socket(), str(installation.results())


def site_file(folder: Path, name: str = "site.yaml") -> Path:
    """A site file with its own paths."""
    text = sites.GOOD.read_text().replace("path: /nas", "path: /mnt/nas")
    path = folder / name
    path.write_text(text)
    return path


def test_paths_come_from_named_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From its site file, or from the view beside it, which every user may read."""
    monkeypatch.setenv(wellknown.ENV_SITE, str(site_file(tmp_path)))
    assert found() == ("/etc/slurm/slurm.conf", "/run/penstock/penstockd.sock", "/mnt/nas/results")
    places = {"slurm_conf": "/b/slurm.conf", "socket": "/b/s", "results": "/b/results"}
    (tmp_path / "site.json").write_text(json.dumps({"penstockd": places}))
    assert found() == ("/b/slurm.conf", "/b/s", "/b/results")


def test_precedence_of_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """$SLURM_CONF does not count for a named site: jobs would be shown with another Slurm's pods."""
    for name in VARIABLES[1:]:
        monkeypatch.setenv(name, f"/own/{name}")
    assert found() == ("/own/SLURM_CONF", "/own/PENSTOCK_SOCKET", "/own/PENSTOCK_RESULTS")
    monkeypatch.setenv(wellknown.ENV_SITE, str(site_file(tmp_path)))
    assert found() == ("/etc/slurm/slurm.conf", "/own/PENSTOCK_SOCKET", "/own/PENSTOCK_RESULTS")


def test_installed_site_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without one, default paths and no results."""
    assert found() == (installation.DEFAULT_CONF, installation.DEFAULT_SOCKET, "None")
    monkeypatch.setattr(wellknown, "SITE_FILE", str(site_file(tmp_path)))
    assert found()[2] == "/mnt/nas/results"


def test_missing_named_site_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Otherwise another site would be shown."""
    monkeypatch.setenv(wellknown.ENV_SITE, str(tmp_path / "no.yaml"))
    with pytest.raises(errors.UsageError, match=r"no\.yaml"):
        installation.slurm_conf()
