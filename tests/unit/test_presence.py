"""A daemon's lock shows that it runs, and with which settings."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from penstock import presence


def test_lock_shows_a_running_daemon(tmp_path: Path) -> None:
    """With its settings' fingerprint, until it ends."""
    config = tmp_path / "settings.json"
    config.write_text("{}")
    lock = tmp_path / "lock"
    assert not presence.look(lock).runs
    held = presence.hold(lock, presence.fingerprint(config))
    assert presence.look(lock) == presence.Presence(runs=True, settings=presence.fingerprint(config))
    config.write_text('{"new": 1}')
    assert presence.look(lock).settings != presence.fingerprint(config)
    os.close(held)
    assert not presence.look(lock).runs


def test_a_second_daemon_is_refused(tmp_path: Path) -> None:
    """The first one's fingerprint stays."""
    held = presence.hold(tmp_path / "lock", "first")
    with pytest.raises(BlockingIOError):
        presence.hold(tmp_path / "lock", "second")
    assert presence.look(tmp_path / "lock").settings == "first"
    os.close(held)


def test_look_does_not_prevent_a_start(tmp_path: Path) -> None:
    """The doctor holds the lock for a moment; a daemon that starts then waits for it."""
    import fcntl

    looking = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.2, os.close, [looking]).start()
    began = time.monotonic()
    os.close(presence.hold(tmp_path / "lock"))
    assert time.monotonic() - began < presence.LOOKING_SECONDS


def test_no_other_file_is_written_through_the_lock(tmp_path: Path) -> None:
    """The collector is root in a folder of SlurmUser's, who may create links there."""
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "hard").hardlink_to(victim)
    os.close(presence.hold(tmp_path / "hard", "settings"))
    (tmp_path / "soft").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"):
        presence.hold(tmp_path / "soft", "settings")
    assert victim.read_text() == "kept"
