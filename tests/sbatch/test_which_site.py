"""The site of a script without --site."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.install import sites

from penstock import errors, wellknown
from penstock.cli import explain, mkinst, quick, validate
from penstock.views import installation

VIEW = """{"partitions": {"gpu": {"default": true}}, "default_image": "site:1", "shared_mounts": ["/nas"],
  "memory_per_cpu_mib": 2048, "nodes": [{"count": 2, "cpus": 8, "memory_mib": 32768, "gpus": 4}]}"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(wellknown.ENV_SITE, raising=False)
    monkeypatch.setattr(wellknown, "SITE_FILE", f"{tmp_path}/etc/site.yaml")
    (tmp_path / "etc").mkdir()
    return tmp_path


def script(folder: Path, options: str) -> str:
    (folder / "a.sh").write_text(f"#!/bin/sh\n#SBATCH {options}\n")
    return "a.sh"


def checked(name: str, *words: str) -> Result:
    return CliRunner().invoke(validate.validate, [*words, name])


@pytest.mark.parametrize(
    ("options", "code"),
    [("--gres=gpu:8", "never-fits"), ("-p nope", "unknown-partition"), ("--mem=640G", "never-fits")],
)
def test_validate_uses_the_site_of_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: str, code: str
) -> None:
    (folder / "site.json").write_text(VIEW)
    name = script(folder, options)
    assert checked(name).exit_code == 0
    monkeypatch.setenv(wellknown.ENV_SITE, f"{folder}/site.json")
    assert f"error[{code}]" in checked(name).output
    request = quick.parse([name])
    assert request is not None
    assert quick.run(request) == 1


def test_view_beside_a_site_file_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in effect; the site file may be a draft, or unreadable."""
    (folder / "site.yaml").write_text("a draft: [\n")
    (folder / "site.json").write_text(VIEW)
    monkeypatch.setenv(wellknown.ENV_SITE, f"{folder}/site.yaml")
    assert "unknown-partition" in checked(script(folder, "-p nope")).output


def test_site_file_without_a_view_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = sites.GOOD.read_text().replace("/etc/slurm/slurm.conf", f"{folder}/slurm.conf")
    sized = "nodes: s1\n    cpus: 8\n    memory: 8Gi"
    text = text.replace("selector: {pool: small}\n    size: kubernetes", sized)
    (folder / "site.yaml").write_text(text)
    monkeypatch.setenv(wellknown.ENV_SITE, f"{folder}/site.yaml")
    found = installation.chosen(None)
    assert found is not None
    assert "gpu" in found.partitions


def test_installed_site_is_the_default(folder: Path) -> None:
    """A site file alone does not count: nothing is installed."""
    name = script(folder, "-p nope")
    (folder / "etc" / "site.yaml").write_text("a draft: [\n")
    assert checked(name).exit_code == 0
    (folder / "etc" / "site.json").write_text(VIEW)
    assert "unknown-partition" in checked(name).output


def test_empty_site_option_disables_the_site(folder: Path) -> None:
    """For scripts that are meant for another cluster."""
    (folder / "etc" / "site.json").write_text(VIEW)
    name = script(folder, "-p nope")
    assert checked(name, "--site", "").exit_code == 0
    assert quick.parse(["--site=", name]) is None


def test_precedence_of_sites(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--site, the environment, the default path."""
    for number, name in enumerate(("etc/site.json", "told.json", "said.json")):
        (folder / name).write_text(f'{{"max_array_size": {number}}}')
    sizes = [installation.chosen(None)]
    monkeypatch.setenv(wellknown.ENV_SITE, "told.json")
    sizes += [installation.chosen(None), installation.chosen("said.json")]
    assert [found.max_array_size for found in sizes if found] == [0, 1, 2]


def test_missing_site_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(wellknown.ENV_SITE, f"{folder}/no/site.yaml")
    result = checked(script(folder, "-N1"))
    assert isinstance(result.exception, errors.UsageError)
    assert "site.yaml: No such file" in result.exception.message


def test_explain_shows_the_sites_settings(folder: Path) -> None:
    """Image, memory per CPU, NAS."""
    (folder / "etc" / "site.json").write_text(VIEW)
    said = CliRunner().invoke(explain.explain, [script(folder, "-c2")]).output
    assert "image         site:1\n" in said
    assert "memory 4096Mi (2048 MiB per CPU, unless the partition sets another default)" in said
    assert "/nas" in next(line for line in said.split("\n") if "mounts" in line)


def test_instance_has_the_sites_image(folder: Path) -> None:
    (folder / "etc" / "site.json").write_text(VIEW)
    said = CliRunner().invoke(mkinst.mkyaml, ["cpu", "std", "2019123456", "--job-id", "7"]).output
    assert 'image: "site:1"\n' in said


def test_site_file_is_not_read_beside_a_view(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take several times as long as the check."""
    (folder / "site.json").write_text(VIEW)
    shutil.copy(folder / "site.json", folder / "site.yaml")
    monkeypatch.setenv(wellknown.ENV_SITE, f"{folder}/site.yaml")
    monkeypatch.setattr(installation, "_from_site_file", None)
    assert installation.chosen(None) is not None
