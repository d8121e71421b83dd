"""Scripts with a command line that sbatch has accepted."""

from __future__ import annotations

from pathlib import Path

import click.testing
import pytest

from penstock.cli import quick, validate
from penstock.sbatch import submitted

SITE = """{"partitions": {"k8s": {"max_time": "1-0", "default": true}, "host": {"bridged": false}},
"nodes": [{"cpus": 8}]}"""
SCRIPT = "#!/bin/sh\n#SBATCH -p v100 -t 9-0 -c 99\ntrue\n"
RIGHT = ("-p", "k8s", "-t10", "--cpus-per-task=2")


def understood(*words: str) -> tuple[str, ...]:
    return submitted.understood(words, release="22.05", gres_types=("gpu",))


def test_known_options_keep_their_values() -> None:
    """Short and long, bundled and separate, with an empty value."""
    assert understood("-p", "k8s", "-t10", "-HQ", "--comment", "", "--exclusive", "--cpus-per-t=2") == (
        "--partition=k8s",
        "--time=10",
        "--hold",
        "--quiet",
        "--comment=",
        "--exclusive",
        "--cpus-per-task=2",
    )


@pytest.mark.parametrize(
    "words",
    [
        ("--container-image=a/b", "-p", "k8s"),
        ("--container-image", "a/b", "-p", "k8s"),
        ("--gres=lscratch:1", "-p", "k8s"),
        ("--time=soon", "-p", "k8s", "--"),
        ("-p", "k8s", "--container-image"),
    ],
)
def test_unknown_options_are_ignored(words: tuple[str, ...]) -> None:
    """Options of SPANK plugins, a GRES of slurm.conf."""
    assert understood(*words) == ("--partition=k8s",)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """A script that is invalid at this site."""
    (tmp_path / "job.sh").write_text(SCRIPT)
    (tmp_path / "site.json").write_text(SITE)
    return (f"--site={tmp_path}/site.json", str(tmp_path / "job.sh"))


def test_command_line_overrides_the_script(
    files: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert quick.validate(files) == 1
    given = [f"--with={word}" for word in RIGHT]
    assert quick.validate((*given, *files)) == 0
    assert click.testing.CliRunner().invoke(validate.validate, [*given, *files]).exit_code == 0
    assert "unknown-partition" in capsys.readouterr().out


def test_impossible_command_line_is_refused(
    files: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the place in the command line."""
    assert quick.validate(("--with=-p", "--with=k8s", "--with=-t2-0", "--with=-c1", *files)) == 1
    assert "error[over-max-time]: command line" in capsys.readouterr().out
