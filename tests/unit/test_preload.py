"""Nothing is left to import once penstockd has dropped root."""

from __future__ import annotations

import re
import subprocess
import sys

from penstock.daemon import preload
from penstock.sbatch import k8s

LATER = """
import sys
from penstock.daemon import penstockd, preload
from penstock.sbatch import poddirectives
preload.warm_up()
before = set(sys.modules)
poddirectives.pod_of(preload.DIRECTIVES)
print(sorted(set(sys.modules) - before))
"""


def test_parsing_directives_imports_nothing() -> None:
    """Some directives import modules at first use."""
    argv = [sys.executable, "-c", LATER]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "[]\n"


def test_preload_uses_every_directive() -> None:
    assert set(re.findall(r"#K8S_([A-Z_]+)=", preload.DIRECTIVES.decode())) == set(k8s.NAMES)
