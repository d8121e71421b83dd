"""Only reading a site file loads pydantic: commands start fast without it, and penstockd stays small."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    ["penstock.cli.main", "penstock.cli.validate", "penstock.cli.explain", "penstock.daemon.penstockd"],
)
def test_pydantic_is_not_loaded(module: str) -> None:
    code = f"import sys, {module}; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
