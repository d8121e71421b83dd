"""Runs the end-to-end and conformance tests on a real Kubernetes that is built and started on this machine.

Where something is missing it says exactly what, runs nothing and succeeds: nobody needs Go or containerd to
work on Penstock, but nobody should believe either that these tests have run.

usage: test_kubernetes.py [PYTEST-ARGUMENT …]
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

from rich import console

from penstock import errors, wellknown
from penstock.lab import progress, spec
from penstock.lab.kubernetes import building, requirements, watches

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["tests/conformance", "tests/e2e"]
WITHOUT_CLUSTER = ["tests/e2e/test_lab.py", "tests/e2e/test_lab_ends.py", "tests/e2e/test_compiler_oracle.py"]
"""About the lab and the compiler, the same with every cluster: `make test` runs them, and once is enough.
What a real cluster could leave behind is looked for in tests/conformance/test_lifecycle.py."""
KEPT = ("PATH", wellknown.ENV_CACHE, wellknown.ENV_TEST_KUBERNETES_VERSION, wellknown.ENV_TEST_SLURM)
"""What root is told of our environment."""
WORKERS = 3
"""Tests mostly wait, each worker in a cluster of its own (1.2 GB)."""


def become_root(arguments: list[str]) -> None:
    """Real kubelets need root: this process goes on as root, if sudo lets it."""
    if os.geteuid() != 0 and shutil.which("sudo"):
        print("penstock: a real Kubernetes needs root: asking sudo", flush=True)
        argv = ["sudo", f"--preserve-env={','.join(KEPT)}", sys.executable, __file__, *arguments]
        os.execvp(argv[0], argv)  # noqa: S606  # an argv list; this process becomes the one with the rights


def skip_if_impossible() -> None:
    """Say what is missing, all of it, and end well."""
    found = requirements.missing(os.environ)
    if found:
        skip(found)


def skip(reasons: list[str]) -> NoReturn:
    """Never in silence."""
    print("penstock: the tests on a real Kubernetes are SKIPPED; missing on this machine:")
    for line in reasons:
        print(f"  - {line}")
    sys.exit(0)


def workers() -> int:
    """As many as the kernel's inotify instances allow; said when that is fewer than there should be."""
    free = watches.limit() - watches.used()
    possible = next((number for number in range(WORKERS, 1, -1) if instances(number) <= free), 1)
    if instances(WORKERS) > free:
        print(
            f"penstock: {free} of {watches.limit()} inotify instances are free, {WORKERS} workers may take"
            f" {instances(WORKERS)}: going on with {possible}. For all of them: {watches.advice()}",
            flush=True,
        )
    return possible


def instances(number: int) -> int:
    """What that many workers take, each with its cluster, and one that tests make in turn (lab.testing)."""
    return (number + 1) * watches.needed(spec.DEFAULT_NODES)


def main(arguments: list[str]) -> None:
    os.chdir(ROOT)
    become_root(arguments)
    skip_if_impossible()
    try:
        version = os.environ.get(wellknown.ENV_TEST_KUBERNETES_VERSION) or building.NEWEST
        building.ensure(building.VERSIONS[version], listener=progress.PlainLines(console.Console()))
    except building.ModulesUnreachableError as error:
        skip([f"{error.message}: {error.hint}"])
    except errors.LabError as error:
        sys.exit(f"penstock: {error.message}\n  {error.hint}")
    os.environ[wellknown.ENV_TEST_KUBERNETES] = "real"
    ignored = [f"--ignore={path}" for path in WITHOUT_CLUSTER]
    chosen = arguments or [f"--numprocesses={workers()}", "--dist=loadfile", *TESTS, *ignored]
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *chosen]
    os.execv(argv[0], argv)  # noqa: S606  # an argv list; this process becomes pytest


if __name__ == "__main__":
    main(sys.argv[1:])
