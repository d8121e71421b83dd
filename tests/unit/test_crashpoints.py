"""Crash points: inactive in production, once when armed, rendered into hooks only in labs for tests."""

from __future__ import annotations

import dataclasses
import importlib
import multiprocessing
import re
import signal
from pathlib import Path

import pytest

from penstock import crashpoints, wellknown
from penstock.hooks import points
from penstock.render import crashhooks, hooks
from penstock_lab import testing

SETTINGS = hooks.HookSettings(
    libexec="/x/libexec",
    socket="/x/sock",
    bridged_partitions=("gpu",),
    default_partition="gpu",
    release_timeout=270,
    slurm_conf="/x/slurm.conf",
    state_dir="/x/state",
)


def test_crash_points_do_nothing_in_production() -> None:
    """They look at neither environment nor disk."""
    code = crashpoints._pass_by.__code__
    assert crashpoints.reach is crashpoints._pass_by
    assert code.co_names == ()


def test_the_variable_is_read_when_the_process_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file that arms the step is taken once."""
    monkeypatch.setenv(wellknown.ENV_CRASH_POINTS, str(tmp_path))
    try:
        armed = importlib.reload(crashpoints)
        (tmp_path / "here").touch()
        child = multiprocessing.get_context("fork").Process(target=armed.reach, args=("here",))
        child.start()
        testing.until((tmp_path / "here.reached").exists)
        armed.reach("here")
        armed.reach("elsewhere")
        child.kill()
        child.join(20)
        assert child.exitcode == -signal.SIGKILL
    finally:
        monkeypatch.undo()
        importlib.reload(crashpoints)


def test_crash_point_holds_until_released(tmp_path: Path) -> None:
    """The process that is held leaves its pid."""
    (tmp_path / "here").touch()
    child = multiprocessing.get_context("fork").Process(target=points.reach, args=(str(tmp_path), "here"))
    child.start()
    try:
        mark = tmp_path / "here.reached"
        testing.until(lambda: mark.exists() and mark.read_text() == f"{child.pid}\n")
        child.join(0.3)
        assert child.is_alive()
        mark.unlink()
        child.join(20)
        assert child.exitcode == 0
    finally:
        child.kill()


def test_installed_hooks_have_no_crash_points() -> None:
    """They are the source files unchanged, without points.py."""
    rendered = {one.name: one.content for one in hooks.render_hooks(SETTINGS)}
    assert not any(name.endswith(crashhooks.POINTS) for name in rendered)
    assert not any(b"points.reach" in content or b".reached" in content for content in rendered.values())


def test_armed_hooks_differ_only_in_crash_points() -> None:
    """Every comment that names a step becomes a call, and the files stay valid."""
    plain = {one.name: one.content for one in hooks.render_hooks(SETTINGS)}
    tested = {
        one.name: one.content
        for one in hooks.render_hooks(dataclasses.replace(SETTINGS, crash_points="/x/points"))
    }
    assert set(tested) - set(plain) == {f"{hooks.PACKAGE}/{crashhooks.POINTS}"}
    for name, content in plain.items():
        steps = re.findall(rb"crash point: ([a-z.-]+)", content)
        assert all(tested[name].count(b"'%s" % step + b"'") or b"/" + step in tested[name] for step in steps)
        if name.endswith(".py"):
            compile(tested[name], name, "exec")
            assert tested[name].count(b"points.reach(") == len(steps)
            assert bool(re.search(rb"^from \. import .*\bpoints$", tested[name], re.MULTILINE)) == bool(steps)
        if not steps:
            assert tested[name] == content
