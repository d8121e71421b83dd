"""A lab whose penstockd is run from rendered manifests, as at a site, and not by the lab."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock
from penstock.kube import kubeconfig
from penstock.render import yamltext
from penstock.site import yamlreader
from penstock_lab import spec, supervision, testing
from penstock_lab.components import PENSTOCKD, all_components
from penstock_lab.kubernetes import localimages

NODE = "n1"


def stop(lab: testing.RunningLab, name: str) -> None:
    """Stop one of the lab's daemons; `penstock lab restart` starts it again."""
    components = all_components(lab.place, spec.load(lab.place))
    supervision.Supervisor(lab.place).stop(next(each for each in components if each.name == name))


def document_of(lab: testing.RunningLab) -> dict[str, Any]:
    """The lab's site file as a mutable document."""
    found: dict[str, Any] = yamlreader.read(lab.place.site_yaml.read_bytes()).data
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]  # a deep copy


def write(lab: testing.RunningLab, document: dict[str, Any], name: str) -> Path:
    path = lab.place.etc / name
    path.write_text(yamltext.document(document) + "\n")
    return path


def api_of(lab: testing.RunningLab) -> str:
    """host:port of the lab's API."""
    return kubeconfig.load(lab.place.admin_kubeconfig).server.removeprefix("https://")


def programs() -> list[str]:
    """The paths that penstock needs on this machine: interpreter, packages, Slurm's commands."""
    interpreter = Path(sys.executable).resolve()
    found = {"/usr", "/etc/passwd", "/etc/group", sys.prefix, str(Path(penstock.__file__).parents[1])}
    if not interpreter.is_relative_to("/usr"):
        found.add(str(interpreter.parents[1]))
    return sorted(found)


def deployment_site(lab: testing.RunningLab) -> Path:
    """penstockd in a pod on the lab's first node, with this machine's files."""
    document = document_of(lab)
    account = {"service_account_dir": str(lab.place.etc / "account")}
    document["kubernetes"] |= {"access": "in-cluster", "api": api_of(lab)}
    document["kubernetes"] |= account if testing.kubernetes() == spec.DEV else {}
    document["penstockd"] |= {
        "run": "deployment",
        "node": NODE,
        "image": localimages.USERLAND,
        "host_paths": [*programs(), str(lab.place.directory)],
    }
    return write(lab, document, "deployed.yaml")


def deployment(lab: testing.RunningLab) -> dict[str, Any]:
    """The live object."""
    argv = ("kubectl", "get", "deployment", PENSTOCKD, "--namespace=penstock-system", "-o", "json")
    found: dict[str, Any] = json.loads(lab.run(argv).stdout)
    return found


@contextlib.contextmanager
def pod_by_hand(lab: testing.RunningLab) -> Iterator[None]:
    """The dev cluster has no Deployment controller: run the pod's one container here."""
    spec_ = deployment(lab)["spec"]["template"]["spec"]
    (container,) = spec_["containers"]
    for volume in spec_["volumes"]:
        assert Path(volume["hostPath"]["path"]).exists(), volume
    _account(lab)
    env = {"PATH": os.environ["PATH"]} | {each["name"]: each["value"] for each in container["env"]}
    log = lab.place.log / "by-hand.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            container["command"], env=env, stdout=output, stderr=subprocess.STDOUT, cwd="/"
        ) as child,
    ):
        try:
            probe = container["readinessProbe"]["exec"]["command"]
            testing.until(lambda: _is_ready(probe, env) or child.poll() is not None, seconds=60)
            assert child.poll() is None, log.read_text()
            yield
        finally:
            child.terminate()
            child.wait(timeout=30)


def _is_ready(probe: list[str], env: dict[str, str]) -> bool:
    done = subprocess.run(probe, env=env, capture_output=True, timeout=30, check=False)
    return done.returncode == 0


def _account(lab: testing.RunningLab) -> None:
    """The files that a kubelet puts into a pod."""
    found = json.loads(lab.run(("kubectl", "config", "view", "--raw", "-o", "json")).stdout)
    folder = lab.place.etc / "account"
    folder.mkdir(exist_ok=True)
    authority = base64.b64decode(found["clusters"][0]["cluster"]["certificate-authority-data"])
    (folder / "ca.crt").write_bytes(authority)
    token = kubeconfig.load(lab.place.penstockd_kubeconfig).bearer
    (folder / "token").write_text(token)


@contextlib.contextmanager
def pod_of_the_cluster(lab: testing.RunningLab) -> Iterator[None]:
    """A real cluster starts the pod; it is ready once penstockd has answered."""
    testing.until(lambda: deployment(lab).get("status", {}).get("readyReplicas") == 1, seconds=150)
    yield


@contextlib.contextmanager
def deployed() -> Iterator[tuple[testing.RunningLab, Path]]:
    """The lab, its penstockd run by the rendered Deployment, and the site file."""
    with testing.temporary_lab() as lab:
        stop(lab, PENSTOCKD)
        path = deployment_site(lab)
        lab.penstock("apply", "--yes", "--site", str(path))
        running = pod_by_hand if testing.kubernetes() == spec.DEV else pod_of_the_cluster
        with running(lab):
            yield lab, path
