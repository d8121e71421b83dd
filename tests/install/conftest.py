"""Fixture `host`: applies site files for real, with programs that record their calls."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.install.hosts import Host

from penstock.install import installers


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host with systemd and an existing Slurm."""
    if os.geteuid() != 0:
        pytest.skip("files get owners: needs root")
    made = Host(tmp_path)
    monkeypatch.setenv("PATH", f"{made.programs}:{os.environ['PATH']}")
    monkeypatch.setattr(installers, "SYSTEMD", tmp_path)
    return made
