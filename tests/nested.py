"""A pytest within a test.

It gets a folder for temporary files of its own: each pytest closes the usual one to other users as it starts,
also for tests of another pytest that have just opened theirs to a user whose rights they try.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEMPORARY = "PYTEST_DEBUG_TEMPROOT"


def run(
    arguments: Sequence[str], *, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, from the project's root, to its end."""
    with tempfile.TemporaryDirectory(prefix="penstock-n") as folder:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**environment, TEMPORARY: folder},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
