"""The wheel that docs/install.md builds has all that the commands need."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files; built with the pinned hatchling, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    argv = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps")
    built = ("--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(ROOT))
    subprocess.run((*argv, *built), check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("penstock-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "files")
    return folder / "files"


def test_wheel_has_every_file_of_the_package(unpacked: Path) -> None:
    """Hooks, units and tables as well as modules."""
    package = ROOT / "src/penstock"
    expected = {
        str(path.relative_to(package))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found = unpacked / "penstock"
    assert {str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()} == expected
    assert {path.name for path in unpacked.iterdir()} == {"penstock", "penstock-0.1.0.dist-info"}


@pytest.mark.parametrize("words", [("--version",), ("-h",), ("validate", "--site", "", "-"), ("init", "-h")])
def test_wheel_works_without_the_sources(unpacked: Path, words: tuple[str, ...]) -> None:
    argv = (sys.executable, "-P", "-m", "penstock", *words)
    env = {"PYTHONPATH": str(unpacked), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    script = "#!/bin/sh\n#SBATCH --gres=gpu:1\n#K8S_IMAGE=a/b:1\nhostname\n"
    done = subprocess.run(
        argv, env=env, cwd=unpacked, input=script, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_lab_commands_name_their_distribution(unpacked: Path, tmp_path: Path) -> None:
    """A site installs penstock only."""
    places = [path for path in sys.path if path.endswith("site-packages")]
    for place in places:
        for package in Path(place).iterdir():
            if not package.name.startswith(("penstock", "_penstock", "_editable")):
                (tmp_path / package.name).symlink_to(package)
    env = {"PYTHONPATH": f"{unpacked}:{tmp_path}", "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    argv = (sys.executable, "-S", "-P", "-m", "penstock", "lab", "up")
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "penstock-lab" in done.stderr
    assert "Traceback" not in done.stderr
