"""Which programs a test may call: what its make target installs (scripts/fence.py), and what it declares.

    @pytest.mark.needs("containerd")
    @pytest.mark.needs("systemd-analyze", package="systemd")

makes the program visible to the test if this machine has it, and skips the test with a message otherwise.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from scripts import fence

from penstock import wellknown

SEARCHED = ("PATH", wellknown.ENV_LAB_PATH)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(program, package=program): skipped where it is not installed")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What a test declares it sees from its fixtures' start to their end."""
    outside = {name: path for name, _ in declared(item) if (path := find_outside(name))}
    if not outside:
        return (yield)
    before = {name: os.environ[name] for name in SEARCHED if name in os.environ}
    with tempfile.TemporaryDirectory(prefix="penstock-needed-") as folder:
        Path(folder).chmod(0o755)
        for name, path in outside.items():
            (Path(folder) / name).symlink_to(path)
        os.environ.update({name: f"{value}:{folder}" for name, value in before.items()})
        try:
            return (yield)
        finally:
            os.environ.update(before)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for name, package in declared(item):
        if shutil.which(name) is None:
            pytest.skip(f"needs the program {name} (Debian package {package}), which is not installed")


def declared(item: pytest.Item) -> list[tuple[str, str]]:
    """Programs with the packages that bring them."""
    marks = item.iter_markers("needs")
    return [(name, mark.kwargs.get("package", name)) for mark in marks for name in mark.args]


def find_outside(name: str) -> str | None:
    """Where the machine has a program that the tests' PATH does not have."""
    if shutil.which(name) is not None:
        return None
    return shutil.which(name, path=os.environ.get(fence.OUTSIDE, ""))
