"""Nothing is left to import once penstockd has given up root."""

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


def test_directives_need_no_module_any_more() -> None:
    """Each is read once before: some of their readers import what only they need."""
    argv = [sys.executable, "-c", LATER]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "[]\n"


def test_every_directive_is_among_them() -> None:
    """One that is added later has to be added there."""
    assert set(re.findall(r"#K8S_([A-Z_]+)=", preload.DIRECTIVES.decode())) == set(k8s.NAMES)
