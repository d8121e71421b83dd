"""Writes requirements/*.txt from *.in: exact versions with hashes, without the index's address."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
OPTIONS = [
    "--quiet", "--generate-hashes", "--strip-extras", "--allow-unsafe",
    "--no-emit-index-url", "--no-emit-find-links", "--no-emit-trusted-host",
]  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tools = Path(folder) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(tools)], check=True, timeout=120)
        subprocess.run([str(tools / "bin" / "pip"), "-q", "install", "pip-tools"], check=True, timeout=600)
        environment = os.environ | {"CUSTOM_COMPILE_COMMAND": "make requirements"}
        for name in ("build", "runtime", "lab", "dev"):
            argv = [
                str(tools / "bin" / "pip-compile"),
                *OPTIONS,
                "--output-file",
                f"{name}.txt",
                f"{name}.in",
            ]
            subprocess.run(argv, cwd=FOLDER, env=environment, check=True, timeout=900)


if __name__ == "__main__":
    main()
