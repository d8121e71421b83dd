"""Validation before any change."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from tests.install import sites

from penstock import errors
from penstock.install import installers, kubeadmin, plans
from penstock.slurm import controller

CONF = (
    "ClusterName=x\nSlurmctldHost=localhost\nSlurmctldPort=1\n{more}\nNodeName=n1\nPartitionName=p Nodes=n1\n"
)


@pytest.mark.needs("scontrol", package="slurm-client")
@pytest.mark.parametrize(
    ("more", "words"),
    [("FooBar=1", "unrecognized key: FooBar"), ("KillWait=abc", "KillWait")],
)
def test_slurm_conf_that_slurm_cannot_read_is_refused(tmp_path: Path, more: str, words: str) -> None:
    """With Slurm's own message."""
    path = tmp_path / "slurm.conf"
    path.write_text(CONF.format(more=more))
    with pytest.raises(errors.InstallError, match=words):
        installers.require_readable(str(path))


@pytest.mark.needs("scontrol", package="slurm-client")
def test_validation_does_not_need_slurmctld(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(CONF.format(more=""))
    asked = subprocess.run(
        ("scontrol", "show", "config"),
        env={"SLURM_CONF": str(path)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert asked.returncode != 0, "there is a slurmctld"
    installers.require_readable(str(path))


@pytest.mark.parametrize(
    ("live", "wanted", "same"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": {"b": "1"}}, {"a": {"b": 1}}, True),
        ({"a": [{"x": 1, "y": 2}]}, {"a": [{"x": 1}]}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({}, {"a": {}}, True),
        ({"a": None}, {"a": {"b": 1}}, False),
    ],
)
def test_object_with_all_our_fields_is_up_to_date(live: object, wanted: object, same: bool) -> None:
    """It may have more fields."""
    assert plans.contains(live, wanted) is same


@pytest.mark.parametrize(
    ("kind", "version", "home", "path"),
    [
        ("Namespace", "v1", "", "/api/v1/namespaces/x"),
        ("Secret", "v1", "h", "/api/v1/namespaces/h/secrets/x"),
        ("PriorityClass", "scheduling.k8s.io/v1", "", "/apis/scheduling.k8s.io/v1/priorityclasses/x"),
        (
            "NetworkPolicy",
            "networking.k8s.io/v1",
            "h",
            "/apis/networking.k8s.io/v1/namespaces/h/networkpolicies/x",
        ),
    ],
)
def test_api_paths_of_objects(kind: str, version: str, home: str, path: str) -> None:
    """Kinds with an irregular plural, with and without a namespace."""
    metadata = {"name": "x"} | ({"namespace": home} if home else {})
    assert kubeadmin.path_of({"apiVersion": version, "kind": kind, "metadata": metadata}) == path


@pytest.mark.needs("scontrol", package="slurm-client")
def test_relative_includes_are_found(tmp_path: Path) -> None:
    """Slurm would look for them in the folder where it is tried until nobody waits for it any more, and a
    mistake would not be seen.
    """
    conf = tmp_path / "slurm.conf"
    site = sites.site(("/etc/slurm/slurm.conf", str(conf)))
    (tmp_path / "more.conf").write_text("KillWait=5\n")
    installer = installers.Installer(site, kubernetes=False)
    good = CONF.format(more="Include more.conf").encode()
    began = time.monotonic()
    installer._require_readable({str(conf): good}, str(conf))
    with pytest.raises(errors.InstallError, match="unrecognized key: FooBar"):
        installer._require_readable({str(conf): good + b"FooBar=1\n"}, str(conf))
    assert time.monotonic() - began < controller.PING_SECONDS
