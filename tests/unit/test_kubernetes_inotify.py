"""inotify instances: counted before they are used up, and said in words afterwards never."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from penstock import errors
from penstock_lab.kubernetes import inotify


def test_an_instance_more_is_seen() -> None:
    """What a process takes is counted, as long as it has it."""
    before = inotify.held(os.getpid())
    descriptor = ctypes.CDLL(None).inotify_init()
    try:
        assert inotify.held(os.getpid()) == before + 1
        assert inotify.used() >= before + 1
    finally:
        os.close(descriptor)
    assert inotify.held(os.getpid()) == before


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that allows 128, of which 100 are taken."""
    (tmp_path / "limit").write_text("128\n")
    monkeypatch.setattr(inotify, "LIMIT", tmp_path / "limit")
    monkeypatch.setattr(inotify, "used", lambda: 100)


@pytest.mark.usefixtures("machine")
def test_a_cluster_that_does_not_fit_is_refused_in_one_line() -> None:
    """With what is used up and what to do."""
    inotify.require(3)
    with pytest.raises(errors.LabError) as refused:
        inotify.require(4)
    assert refused.value.message == (
        "a real Kubernetes with 4 nodes needs 30 inotify instances, and 100 of 128 per user are in use"
    )
    assert "sysctl -w fs.inotify.max_user_instances=1024" in refused.value.hint
