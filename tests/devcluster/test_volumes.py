"""Volumes: host paths, secrets, config maps, empty directories, and how they are mounted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.devcluster import clusters as testing
from tests.devcluster.clusters import pod

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")


def with_volume(
    name: str, script: str, source: dict[str, Any], mount: dict[str, Any], **spec: Any
) -> dict[str, Any]:
    """A pod that runs a script with one volume."""
    container = {"volumeMounts": [{"name": "v", **mount}]}
    volumes = [{"name": "v", **source}]
    return pod(name, "sh", "-c", script, container=container, volumes=volumes, **spec)


def output(api: testing.Client, obj: dict[str, Any]) -> str:
    """Run a pod to its end and read what it wrote."""
    made = api.create("pods", obj)
    name = made["metadata"]["name"]
    api.phase(name, "Succeeded", "Failed")
    return api.log(name)


def mount_problem(api: testing.Client, name: str) -> str:
    """The FailedMount event of a pod that waits."""
    api.until(lambda found: found["status"].get("containerStatuses"), "pods", name)
    events = api.get("events", fieldSelector=f"involvedObject.name={name},reason=FailedMount")["items"]
    return str(events[0]["message"])


def test_host_path_is_the_host_directory(api: testing.Client, tmp_path: Path) -> None:
    """What the pod writes there is on the host, owned by the pod's user."""
    tmp_path.chmod(0o777)
    source = {"hostPath": {"path": str(tmp_path), "type": "Directory"}}
    output(
        api,
        with_volume(
            "p", "echo x > /nas/f", source, {"mountPath": "/nas"}, securityContext={"runAsUser": 4711}
        ),
    )
    assert (tmp_path / "f").read_text() == "x\n"
    assert (tmp_path / "f").stat().st_uid == 4711


def test_read_only_mounts(api: testing.Client, tmp_path: Path) -> None:
    """readOnly is enforced even for root."""
    source = {"hostPath": {"path": str(tmp_path)}}
    text = output(api, with_volume("p", "touch /nas/f", source, {"mountPath": "/nas", "readOnly": True}))
    assert "Read-only file system" in text
    assert not (tmp_path / "f").exists()


def test_host_path_types(api: testing.Client, tmp_path: Path) -> None:
    """DirectoryOrCreate makes the directory, Directory and File insist, a file can be mounted."""
    made, file = tmp_path / "made", tmp_path / "file"
    file.write_text("content\n")
    output(
        api,
        with_volume(
            "a", "ls /m", {"hostPath": {"path": str(made), "type": "DirectoryOrCreate"}}, {"mountPath": "/m"}
        ),
    )
    assert made.is_dir()
    text = output(
        api,
        with_volume(
            "b", "cat /etc/f", {"hostPath": {"path": str(file), "type": "File"}}, {"mountPath": "/etc/f"}
        ),
    )
    assert text == "content\n"
    api.create(
        "pods",
        with_volume("c", "true", {"hostPath": {"path": str(file), "type": "Directory"}}, {"mountPath": "/m"}),
    )
    assert f"{file} is not a directory" in mount_problem(api, "c")
    api.create(
        "pods",
        with_volume("d", "true", {"hostPath": {"path": str(made), "type": "File"}}, {"mountPath": "/m"}),
    )
    assert f"{made} is not a file" in mount_problem(api, "d")


def test_mount_inside_the_read_only_system(api: testing.Client, tmp_path: Path) -> None:
    """A mount point that the host does not have can lie under /etc or /usr, and the host is not touched."""
    (tmp_path / "here").touch()
    source = {"hostPath": {"path": str(tmp_path)}}
    text = output(
        api,
        with_volume(
            "p",
            "ls /usr/penstock-test/deep; ls -d /usr/bin",
            source,
            {"mountPath": "/usr/penstock-test/deep"},
        ),
    )
    assert text == "here\n/usr/bin\n"
    assert not Path("/usr/penstock-test").exists()


def test_sub_path(api: testing.Client, tmp_path: Path) -> None:
    """subPath mounts a part of the volume, makes it when missing, and may not lead out."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_text("in a\n")
    source = {"hostPath": {"path": str(tmp_path)}}
    assert output(api, with_volume("p", "cat /m/f", source, {"mountPath": "/m", "subPath": "a"})) == "in a\n"
    output(api, with_volume("q", "true", source, {"mountPath": "/m", "subPath": "b/c"}))
    assert (tmp_path / "b" / "c").is_dir()
    api.create("pods", with_volume("r", "true", source, {"mountPath": "/m", "subPath": "../.."}))
    found = api.until(lambda one: "waiting" in str(one["status"]), "pods", "r")
    assert "failed to prepare subPath" in str(found["status"]["containerStatuses"][0]["state"])


def test_secret_files_and_modes(api: testing.Client) -> None:
    """Secret files are root's with mode 0644 unless said otherwise; fsGroup gives them to its group."""
    api.create("secrets", {"metadata": {"name": "s"}, "stringData": {"key": "value", "other": "o"}})
    script = "cat /s/key; stat -c '%a %u %g' /s/key; ls /s"
    plain = with_volume(
        "p", script, {"secret": {"secretName": "s"}}, {"mountPath": "/s"}, securityContext={"runAsUser": 99}
    )
    assert output(api, plain).split() == ["value644", "0", "0", "key", "other"]
    owner = {"runAsUser": 99, "fsGroup": 4545}
    source = {"secret": {"secretName": "s", "defaultMode": 0o400, "items": [{"key": "key", "path": "key"}]}}
    grouped = with_volume("q", script, source, {"mountPath": "/s"}, securityContext=owner)
    assert output(api, grouped).split() == ["value440", "0", "4545", "key"]


def test_pod_waits_for_its_secret(api: testing.Client) -> None:
    """A missing secret keeps the pod in ContainerCreating, with an event, until it appears."""
    api.create("pods", with_volume("p", "cat /s/k", {"secret": {"secretName": "late"}}, {"mountPath": "/s"}))
    assert 'secret "late" not found' in mount_problem(api, "p")
    found = api.get("pods", "p")
    assert found["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    api.create("secrets", {"metadata": {"name": "late"}, "stringData": {"k": "here"}})
    api.phase("p", "Succeeded")
    assert api.log("p") == "here"


def test_pod_that_waits_for_a_secret_can_be_deleted(api: testing.Client) -> None:
    """Waiting for a volume does not hold up a deletion."""
    api.create("pods", with_volume("p", "true", {"secret": {"secretName": "never"}}, {"mountPath": "/s"}))
    mount_problem(api, "p")
    api.delete("pods", "p")
    assert api.gone("p", patience=20)["reason"] == "NotFound"


def test_optional_secret_and_config_map(api: testing.Client) -> None:
    """Optional sources that are missing give an empty directory; config maps give text and binary files."""
    source = {"secret": {"secretName": "none", "optional": True}}
    assert output(api, with_volume("p", "ls -A /s", source, {"mountPath": "/s"})) == ""
    api.create("configmaps", {"metadata": {"name": "m"}, "data": {"t": "text"}, "binaryData": {"b": "AAE="}})
    text = output(
        api, with_volume("q", "cat /m/t; od -An -tx1 /m/b", {"configMap": {"name": "m"}}, {"mountPath": "/m"})
    )
    assert text == "text 00 01\n"


def test_missing_item_keeps_the_pod_waiting(api: testing.Client) -> None:
    """An item that the secret does not have is a mount problem."""
    api.create("secrets", {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
    source = {"secret": {"secretName": "s", "items": [{"key": "other", "path": "x"}]}}
    api.create("pods", with_volume("p", "true", source, {"mountPath": "/s"}))
    assert "references non-existent key" in mount_problem(api, "p")


def test_unsupported_volume_is_an_error(api: testing.Client) -> None:
    """A volume type that needs more than this host is refused."""
    api.create("pods", with_volume("p", "true", {"nfs": {"server": "s", "path": "/"}}, {"mountPath": "/s"}))
    assert "unsupported volume type nfs" in mount_problem(api, "p")


def test_empty_dir_is_shared_and_goes_with_the_pod(api: testing.Client, cluster: testing.Running) -> None:
    """Any user may write to it, and nothing of the pod stays in the data directory."""
    script = "touch /e/f; ls /e"
    obj = with_volume("p", script, {"emptyDir": {}}, {"mountPath": "/e"}, securityContext={"runAsUser": 4711})
    assert output(api, obj) == "f\n"
    uid = api.get("pods", "p")["metadata"]["uid"]
    assert (cluster.data_dir / "pods" / uid).is_dir()
    api.delete("pods", "p")
    api.gone("p")
    assert not (cluster.data_dir / "pods" / uid).exists()


def test_nested_mounts_are_visible(api: testing.Client, tmp_path: Path) -> None:
    """A volume mounted inside another one is not hidden by it."""
    (tmp_path / "outer").mkdir()
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "f").write_text("inner\n")
    mounts = [{"name": "i", "mountPath": "/o/sub"}, {"name": "o", "mountPath": "/o"}]
    volumes = [{"name": name[0], "hostPath": {"path": str(tmp_path / name)}} for name in ("outer", "inner")]
    assert (
        output(api, pod("p", "cat", "/o/sub/f", container={"volumeMounts": mounts}, volumes=volumes))
        == "inner\n"
    )


def test_nothing_stays_mounted_on_the_host(api: testing.Client) -> None:
    """While a pod runs, the host's own mount table knows nothing of it."""
    api.create("pods", pod("p", "sleep", "60"))
    found = api.phase("p", "Running")
    assert found["metadata"]["uid"] not in Path("/proc/self/mountinfo").read_text()
