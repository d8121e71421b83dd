"""pydantic is for the site file alone: what must start fast, or is small, never loads it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    ["penstock.cli.main", "penstock.cli.validate", "penstock.cli.explain", "penstock.daemon.penstockd"],
)
def test_pydantic_is_not_loaded(module: str) -> None:
    """Nor is it by penstockd, whose memory counts."""
    code = f"import sys, {module}; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
