"""`make test-k8s`: how many clusters at once are good for the machine at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from scripts import test_kubernetes

from penstock_lab.kubernetes import inotify


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Sixteen cores, 64 GB, and as many inotify instances as anybody could want."""
    memory = tmp_path / "meminfo"
    memory.write_text("MemTotal: 80000000 kB\nMemAvailable: 64000000 kB\n")
    monkeypatch.setattr(test_kubernetes, "MEMORY", memory)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(inotify, "limit", lambda: 1024)
    monkeypatch.setattr(inotify, "used", lambda: 0)
    return monkeypatch


@pytest.mark.parametrize(("cores", "expected"), [(1, 3), (2, 3), (6, 6), (64, 8)])
def test_more_cores_more_workers(machine: pytest.MonkeyPatch, cores: int, expected: int) -> None:
    """Within reason: there are only so many files with tests."""
    machine.setattr(os, "cpu_count", lambda: cores)
    assert test_kubernetes.workers(test_kubernetes.wanted()) == expected


def test_workers_are_limited_by_memory(machine: pytest.MonkeyPatch) -> None:
    """Clusters killed by the OOM killer fail with unrelated messages."""
    test_kubernetes.MEMORY.write_text("MemAvailable: 9000000 kB\n")
    assert test_kubernetes.workers(test_kubernetes.wanted()) == 4


@pytest.mark.parametrize(("limit", "expected"), [(128, 3), (200, 5), (8, 1)])
def test_too_few_inotify_instances_are_reported(
    machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], limit: int, expected: int
) -> None:
    """With a remedy."""
    machine.setattr(inotify, "limit", lambda: limit)
    assert test_kubernetes.workers(test_kubernetes.wanted()) == expected
    assert f"8 workers may need 270: continuing with {expected}" in capsys.readouterr().out


@pytest.mark.usefixtures("machine")
def test_sufficient_resources_are_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert test_kubernetes.workers(test_kubernetes.wanted()) == 8
    assert capsys.readouterr().out == ""
