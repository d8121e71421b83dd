"""Runs the end-to-end and conformance tests on a real Kubernetes that is built and started on this machine.

If something is missing, it lists it, runs nothing and succeeds: Go and containerd are not needed to work on
Penstock, but the skip must be visible.

Failed tests are rerun alone (scripts/reruns.py), unless --strict is given or STRICT is set.

usage: python -m scripts.test_kubernetes [--smoke] [--strict] [PYTEST-OPTION …] [TEST …]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from rich import console
from scripts import bootstrap, fence, reruns, rights
from tests import smoke

from penstock import errors, wellknown
from penstock_lab import progress, spec
from penstock_lab.kubernetes import builds, inotify, requirements

TESTS = ["tests/conformance", "tests/e2e"]
WITHOUT_CLUSTER = ["tests/e2e/test_lab.py", "tests/e2e/test_lab_ends.py", "tests/e2e/test_compiler_oracle.py"]
"""Tests of the lab and the compiler, independent of the cluster: `make test` runs them.
What a real cluster may leave behind is tested in tests/conformance/test_lifecycle.py."""
FEWEST, MOST = 3, 8
"""Workers, each with its own cluster. Tests mostly wait, so two cores suffice for three."""
WORKER_KB = 2_000_000
"""Memory per worker: a cluster takes 1.2 GB, and tests make others one at a time."""
MEMORY = Path("/proc/meminfo")
SMOKE = "--smoke"
PROGRAMS = bootstrap.PROGRAMS | bootstrap.TEST_PROGRAMS | bootstrap.K8S_PROGRAMS | {"go": "golang-go"}
"""Visible to tests: what `make test-k8s` installs, and Go, whose version is part of the cache's name."""


def skip_if_impossible() -> None:
    """List everything that is missing and exit with 0."""
    found = requirements.missing(os.environ)
    if found:
        skip(found)


def skip(reasons: list[str]) -> NoReturn:
    print("penstock: the tests on a real Kubernetes are SKIPPED; missing on this machine:")
    for line in reasons:
        print(f"  - {line}")
    sys.exit(0)


def wanted() -> int:
    """A worker per core, limited by memory."""
    free = next(
        int(line.split()[1]) for line in MEMORY.read_text().split("\n") if line.startswith("MemAvailable:")
    )
    return max(FEWEST, min(MOST, os.cpu_count() or 1, free // WORKER_KB))


def workers(best: int) -> int:
    """As many as the kernel's inotify instances allow; prints a message if that is fewer than `best`."""
    free = inotify.limit() - inotify.used()
    possible = next((number for number in range(best, 1, -1) if instances(number) <= free), 1)
    if possible < best:
        print(
            f"penstock: {free} of {inotify.limit()} inotify instances are free, {best} workers may need"
            f" {instances(best)}: continuing with {possible}. To use all: {inotify.advice()}",
            flush=True,
        )
    return possible


def instances(number: int) -> int:
    """Instances for that many workers with a cluster each, and one more, which tests make one at a time."""
    return (number + 1) * inotify.needed(spec.DEFAULT_NODES)


def chosen(arguments: list[str]) -> list[str]:
    """pytest's arguments: all tests or the named ones, with the options."""
    options = [word for word in arguments if word not in (SMOKE, reruns.STRICT)]
    if any(Path(word.partition("::")[0]).exists() for word in options):
        return options
    if SMOKE in arguments:
        return [f"--numprocesses={workers(smoke.WORKERS)}", "--dist=loadfile", *options, *smoke.TESTS]
    ignored = [f"--ignore={path}" for path in WITHOUT_CLUSTER]
    return [f"--numprocesses={workers(wanted())}", "--dist=loadfile", *options, *TESTS, *ignored]


def build() -> None:
    """Build Kubernetes unless it is cached; skip the tests if the modules cannot be downloaded."""
    version = os.environ.get(wellknown.ENV_TEST_KUBERNETES_VERSION) or builds.NEWEST
    try:
        builds.ensure(builds.VERSIONS[version], listener=progress.PlainLines(console.Console()))
    except builds.ModulesUnreachableError as error:
        skip([f"{error.message}: {error.hint}"])
    except errors.LabError as error:
        sys.exit(f"penstock: {error.message}\n  {error.hint}")


def main(arguments: list[str]) -> None:
    rights.become_root("scripts.test_kubernetes", arguments, why="a real Kubernetes needs root")
    skip_if_impossible()
    build()
    with fence.restricted(PROGRAMS, os.environ | {wellknown.ENV_TEST_KUBERNETES: "real"}) as environment:
        strict = reruns.is_strict(arguments)
        sys.exit(reruns.run(chosen(arguments), environment=environment, strict=strict))


if __name__ == "__main__":
    main(sys.argv[1:])
