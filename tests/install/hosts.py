"""Host: an existing Slurm in a folder, with fake programs, for tests of the commands."""

from __future__ import annotations

from pathlib import Path

import click
import click.testing
from tests.install.places import Place

from penstock.cli import sites
from penstock.install import installers

QUESTIONS = ("squeue ", "scontrol ping", "scontrol show")


class Host(Place):
    """Its programs record their calls and run a given script."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.calls = root / "state" / "calls"
        self.calls.parent.mkdir()
        self.programs = root / "state" / "bin"
        self.programs.mkdir()
        self.site_file = root / "state" / "site.yaml"
        self.site_file.write_text(self.text)
        self.program("squeue", "")
        self.program("systemctl", "")
        self.program("scontrol", "echo 'Slurmctld(primary) at head is UP'")

    def program(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.calls}\n{text}\n')
        path.chmod(0o755)

    def edit(self, old: str, new: str) -> None:
        assert old in self.text
        self.text = self.text.replace(old, new)
        self.site_file.write_text(self.text)

    def line(self, beginning: str) -> int:
        """Number of the first line of the site file with this beginning."""
        lines = self.text.split("\n")
        return next(number for number, line in enumerate(lines, 1) if line.startswith(beginning))

    def called(self, name: str) -> list[str]:
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]

    @property
    def changing(self) -> list[str]:
        """Calls that may change something, without queries."""
        lines = self.calls.read_text().split("\n") if self.calls.exists() else []
        return [line for line in lines if line and not line.startswith(QUESTIONS)]

    def take_back(self) -> None:
        installer = installers.Installer(self.site, kubernetes=False)
        with installer.store.locked():
            installer.recover()
            installer.uninstall(installer.plan_uninstall())

    def applied(self, *words: str) -> click.testing.Result:
        return self._command(sites.apply, *words)

    def uninstalled(self, *words: str) -> click.testing.Result:
        return self._command(sites.uninstall, *words)

    def asked(self, name: str) -> click.testing.Result:
        """Run the command without --yes."""
        return self._invoke(getattr(sites, name))

    def _command(self, command: click.Command, *words: str) -> click.testing.Result:
        return self._invoke(command, "--yes", *words)

    def _invoke(self, command: click.Command, *words: str) -> click.testing.Result:
        self.site_file.write_text(self.text)
        argv = ["--site", str(self.site_file), "--no-kubernetes", *words]
        return click.testing.CliRunner().invoke(command, argv, catch_exceptions=False)
