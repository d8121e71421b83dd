"""Folders that scripts want mounted: looked for before a kubelet would make them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from penstock.bridge import gang, mounting
from penstock.hooks import launch
from penstock.model.jobspec import Mount, PodSpec
from tests.unit import fakes


def test_the_launcher_names_what_its_user_does_not_see(tmp_path: Path) -> None:
    """A folder is fine; a file, a way through a file, nothing, and nonsense are not."""
    (tmp_path / "data").mkdir()
    (tmp_path / "file").touch()
    names = ["data", "file", "file/below", "nowhere", "a\0b"]
    lines = "".join(f"#K8S_MOUNT={tmp_path}/{name}:/x:ro\n" for name in names)
    missing = launch.missing_folders(f"#!/bin/sh\n{lines}echo '#K8S_MOUNT=/y:/z'\n".encode())
    assert missing == [f"{tmp_path}/{name}".encode() for name in names[1:]]


def test_a_folder_that_is_missing_is_named() -> None:
    """Only what is a mount of the script counts."""
    pod = PodSpec(mounts=(Mount(source="/nas/here", target="/a"), Mount(source="/nas/gone", target="/b")))
    request = dataclasses.replace(fakes.REQUEST, pod=pod, missing_folders=(b"/nas/other",))
    mounting.require_folders(request)
    with pytest.raises(gang.GangRefused, match="/nas/gone: there is no such folder") as refused:
        mounting.require_folders(dataclasses.replace(request, missing_folders=(b"/nas/gone",)))
    assert not refused.value.requeue
