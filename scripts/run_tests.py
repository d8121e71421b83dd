"""Runs pytest as root, through sudo if necessary: end-to-end tests start daemons as several users.

Tests see only the programs that `make test` installs (scripts/fence.py). Failed tests are rerun alone
(scripts/reruns.py), unless --strict is given or STRICT is set.

usage: python -m scripts.run_tests [--strict] [PYTEST-ARGUMENT …]
"""

from __future__ import annotations

import os
import sys

from scripts import bootstrap, fence, reruns, rights

# End-to-end tests mostly wait: three workers on two cores, each with its own lab; files are not split.
WORKERS = ("--numprocesses=3", "--dist=loadfile")


def main(arguments: list[str]) -> None:
    rights.become_root("scripts.run_tests", arguments, why="the end-to-end tests need root")
    chosen = [word for word in arguments if word != reruns.STRICT]
    with fence.restricted(bootstrap.PROGRAMS | bootstrap.TEST_PROGRAMS, os.environ) as environment:
        sys.exit(reruns.run([*WORKERS, *chosen], environment=environment, strict=reruns.is_strict(arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
