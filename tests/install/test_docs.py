"""The documents name only commands, options and checks that exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from penstock.cli import group
from penstock.doctor import all_checks

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("install.md", "operations.md", "troubleshooting.md", "using-sbatch.md")
CHECKS = {check.name for check in (*all_checks.ALWAYS, *all_checks.PROBES)}


def commands(text: str) -> list[str]:
    """Every `penstock …` in backticks or in shell blocks."""
    quoted = re.findall(r"`(penstock [^`]+)`", text)
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return quoted + [line for line in lines if line.startswith("penstock ")]


@pytest.mark.parametrize("name", NAMES)
def test_every_documented_command_exists(name: str) -> None:
    """With its options."""
    text = (DOCS / name).read_text()
    context = click.Context(group.cli)
    found = commands(text)
    assert found
    for line in found:
        command: click.Command = group.cli
        for word in line.split()[1:]:
            if isinstance(command, click.Group) and re.fullmatch(r"[a-z]+", word):
                inner = command.get_command(context, word)
                assert inner is not None, line
                command = inner
        options = {
            option for parameter in command.params for option in parameter.opts + parameter.secondary_opts
        }
        for option in re.findall(r"--[a-z-]+", line):
            assert option in options, line


@pytest.mark.parametrize("name", NAMES)
def test_every_documented_check_exists(name: str) -> None:
    """As an argument of `--only`."""
    for check in re.findall(r"--only ([a-z-]+)", (DOCS / name).read_text()):
        assert check in CHECKS | {"slurm", "kubernetes"}


def test_documented_number_of_checks() -> None:
    assert f"{len(CHECKS)} checks" in (DOCS / "install.md").read_text()
