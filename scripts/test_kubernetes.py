"""Runs the end-to-end and conformance tests on a real Kubernetes that is built and started on this machine.

Where something is missing it says exactly what, runs nothing and succeeds: nobody needs Go or containerd to
work on Penstock, but nobody should believe either that these tests have run.

Tests that fail are run again alone (scripts/reruns.py), unless --strict is given or STRICT is set.

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
"""About the lab and the compiler, the same with every cluster: `make test` runs them, and once is enough.
What a real cluster could leave behind is looked for in tests/conformance/test_lifecycle.py."""
FEWEST, MOST = 3, 8
"""Workers, each in a cluster of its own. Tests mostly wait, so that two cores have enough for three."""
WORKER_KB = 2_000_000
"""Of memory: a cluster takes 1.2 GB, and tests make others in turn."""
MEMORY = Path("/proc/meminfo")
SMOKE = "--smoke"
PROGRAMS = bootstrap.PROGRAMS | bootstrap.TEST_PROGRAMS | bootstrap.K8S_PROGRAMS | {"go": "golang-go"}
"""What tests see: what `make test-k8s` installs, and the Go that the programs' cache is named after."""


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


def wanted() -> int:
    """A worker for each core, as far as the memory goes."""
    free = next(
        int(line.split()[1]) for line in MEMORY.read_text().split("\n") if line.startswith("MemAvailable:")
    )
    return max(FEWEST, min(MOST, os.cpu_count() or 1, free // WORKER_KB))


def workers(best: int) -> int:
    """As many as the kernel's inotify instances allow; said when that is fewer than there should be."""
    free = inotify.limit() - inotify.used()
    possible = next((number for number in range(best, 1, -1) if instances(number) <= free), 1)
    if possible < best:
        print(
            f"penstock: {free} of {inotify.limit()} inotify instances are free, {best} workers may take"
            f" {instances(best)}: going on with {possible}. For all of them: {inotify.advice()}",
            flush=True,
        )
    return possible


def instances(number: int) -> int:
    """What that many workers take, each with its cluster, and one that tests make in turn (lab.testing)."""
    return (number + 1) * inotify.needed(spec.DEFAULT_NODES)


def chosen(arguments: list[str]) -> list[str]:
    """Arguments for pytest: all tests, or those that are named; options go with either."""
    options = [word for word in arguments if word not in (SMOKE, reruns.STRICT)]
    if any(Path(word.partition("::")[0]).exists() for word in options):
        return options
    if SMOKE in arguments:
        return [f"--numprocesses={workers(smoke.WORKERS)}", "--dist=loadfile", *options, *smoke.TESTS]
    ignored = [f"--ignore={path}" for path in WITHOUT_CLUSTER]
    return [f"--numprocesses={workers(wanted())}", "--dist=loadfile", *options, *TESTS, *ignored]


def build() -> None:
    """The programs of Kubernetes, unless they are there; says why where they cannot be had."""
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
