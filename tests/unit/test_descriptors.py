"""penstockd raises its limit of open files."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from penstock.daemon import logformat, penstockd, settings

USUAL = 256


def test_open_file_limit_is_raised_to_the_hard_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each running job keeps a connection: with 1024 descriptors a thousand jobs would lock out all hooks."""
    found: list[int] = []

    async def look(site: settings.Settings, fingerprint: str) -> None:
        found.append(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    path = tmp_path / "penstockd.json"
    path.write_text('{"socket": "s", "kubeconfig": "k", "slurm_conf": "c", "hook_uids": [], "pods": {}}')
    monkeypatch.setattr(penstockd, "_run", look)
    monkeypatch.setattr(logformat, "configure", lambda **how: None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL, hard))
    try:
        penstockd.start(settings.load(path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == [hard]
