"""Volumes: which are looked for, and what a kubelet makes of a folder that is not there."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from penstock_lab import testing
from tests.conformance import client

MODE = 0o2771
MISSING = "deep/below"


@pytest.fixture
def shared(lab: testing.RunningLab) -> Path:
    """A folder that nodes have; nobody minds what is left in it, the lab goes with all of it."""
    folder = lab.place.nas / f"volumes-{secrets.token_hex(4)}"
    folder.mkdir()
    folder.chmod(MODE)
    return folder


def mounting(name: str, script: str, shared: Path, sub_path: str, **spec: object) -> client.Json:
    """A pod with one folder of the shared one."""
    volumes = [{"name": "v", "hostPath": {"path": str(shared), "type": "Directory"}}]
    mount = {"name": "v", "mountPath": "/v", "subPath": sub_path}
    return client.shell(name, script, volumes=volumes, container={"volumeMounts": [mount]}, **spec)


def test_unmounted_volume_is_not_checked(api: client.Client, node: str) -> None:
    """So a volume cannot be used to check whether a folder exists."""
    volume = {"name": "unused", "hostPath": {"path": "/nonexistent", "type": "Directory"}}
    api.create("pods", client.shell("careless", "exit 3", volumes=[volume]))
    api.bind("careless", node)
    assert client.terminated(api.phase("careless", "Failed"))["exitCode"] == 3


def test_missing_sub_path_is_created_by_root(api: client.Client, node: str, shared: Path) -> None:
    """Whatever the pod's user, with the volume's mode: so the folder must be checked before."""
    user = {"runAsUser": 4711, "runAsGroup": 4711}
    api.create("pods", mounting("maker", "exit 3", shared, MISSING, securityContext=user))
    api.bind("maker", node)
    assert client.terminated(api.phase("maker", "Failed"))["exitCode"] == 3
    for folder in (shared / MISSING, (shared / MISSING).parent):
        found = folder.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o1777) == (0, 0, MODE & 0o1777)


def test_an_init_container_runs_before_the_others_sub_paths_are_made(
    api: client.Client, node: str, shared: Path
) -> None:
    """It can look, and when it fails nothing is made."""
    looks = {
        "name": "look",
        "image": client.IMAGE,
        "command": ["/bin/sh", "-c", f"echo gone >/dev/termination-log; test -d /all/{MISSING}"],
        "volumeMounts": [{"name": "v", "mountPath": "/all"}],
    }
    api.create("pods", mounting("careful", "exit 3", shared, MISSING, initContainers=[looks]))
    api.bind("careful", node)
    found = api.phase("careful", "Failed")["status"]
    (state,) = [one["state"]["terminated"] for one in found["initContainerStatuses"]]
    assert (state["exitCode"], state["message"]) == (1, "gone\n")
    assert [list(one["state"]) for one in found["containerStatuses"]] == [["waiting"]]
    assert list(shared.iterdir()) == []


def test_a_link_out_of_the_volume_is_not_mounted(api: client.Client, node: str, shared: Path) -> None:
    """CreateContainerConfigError, in words that do not tell where the link leads."""
    (shared / "link").symlink_to("/etc")
    api.create("pods", mounting("curious", "cat /v/passwd", shared, "link"))
    api.bind("curious", node)
    found = api.until(lambda pod: "subPath" in str(pod["status"]), "pods", "curious")
    (state,) = [one["state"]["waiting"] for one in found["status"]["containerStatuses"]]
    assert state["reason"] == "CreateContainerConfigError"
    assert state["message"] == 'failed to prepare subPath for volumeMount "v" of container "job"'
