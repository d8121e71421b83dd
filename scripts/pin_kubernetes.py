"""Writes the Go module from which a minor version of Kubernetes is built.

Kubernetes refers to its staging modules by paths in its own repository; each is replaced by the published
module of the same version. go.sum, which verifies every later build, is made here once and reviewed like
code.

usage: pin_kubernetes.py VERSION        such as 1.35.4, into lab/kubernetes/v1.35
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "lab" / "kubernetes"
STAGING = re.compile(r"^\s*(k8s\.io/\S+) => \./staging/src/\S+$", re.MULTILINE)
ETCD = re.compile(r"go\.etcd\.io/etcd/server/v3 v\S+")
GO = re.compile(r"^go \S+$", re.MULTILINE)
SECONDS = 900


def main(arguments: list[str]) -> None:
    if len(arguments) != 1 or not re.fullmatch(r"1\.\d+\.\d+", arguments[0]):
        sys.exit("usage: pin_kubernetes.py VERSION (such as 1.35.4)")
    version = arguments[0]
    newest = (SOURCE / "go.mod").read_text(encoding="utf-8")
    target = SOURCE / f"v{version.rpartition('.')[0]}"
    target.mkdir(exist_ok=True)
    shutil.copy(SOURCE / "tools.go", target / "tools.go")
    (target / "go.sum").unlink(missing_ok=True)
    (target / "go.mod").write_text(go_mod(version, like=newest, own=own_go_mod(version)), encoding="utf-8")
    run(["go", "mod", "tidy"], target)
    print(f"penstock: {target.name} pins Kubernetes {version}")


def go_mod(version: str, *, like: str, own: str) -> str:
    """The go.mod before `go mod tidy`: etcd and Go as in `like`, staging modules as in `own`."""
    minor = version.removeprefix("1.")
    etcd, go = ETCD.search(like), GO.search(like)
    if etcd is None or go is None:
        sys.exit("kubernetes/go.mod has no etcd or no Go version")
    replaced = "".join(f"\t{name} => {name} v0.{minor}\n" for name in sorted(set(STAGING.findall(own))))
    return (
        f"module penstock/lab/kubernetes/v1.{minor.partition('.')[0]}\n\n{go[0]}\n\n"
        f"require (\n\t{etcd[0]}\n\tk8s.io/kubernetes v{version}\n)\n\nreplace (\n{replaced})\n"
    )


def own_go_mod(version: str) -> str:
    """Kubernetes' own go.mod, which lists the staging modules."""
    answer = run(["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"], SOURCE)
    return Path(json.loads(answer)["GoMod"]).read_text(encoding="utf-8")


def run(argv: list[str], folder: Path) -> str:
    """Run Go without the checksum database: go.sum is made here."""
    environment = os.environ | {"GONOSUMDB": "*", "GOFLAGS": "-mod=mod"}
    result = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if result.returncode:
        sys.exit(f"penstock: {' '.join(argv)} failed:\n{result.stderr[-2000:]}")
    return result.stdout


if __name__ == "__main__":
    main(sys.argv[1:])
