"""Temporary faults of a lab's Kubernetes, Slurm and site file, each made by specific steps."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from typing import Any

from tests.e2e import storms
from tests.e2e.temporaryfaults import (
    NODE,
    Fault,
    Lab,
    site_of,
)

from penstock import wellknown
from penstock.model import releases
from penstock.site import crosschecks, schema
from penstock_lab import components, processes, spec, supervision, testing
from penstock_lab.kubernetes import controlplane
from penstock_lab.slurm import programs


def node_has(amounts: dict[str, str]) -> Fault:
    """Change a node's allocatable resources."""

    @contextlib.contextmanager
    def fault(lab: Lab) -> Iterator[schema.Site]:
        before = _allocatable(lab)
        _patch_node(lab, {**before, **amounts})
        try:
            yield site_of(lab)
        finally:
            _patch_node(lab, before)

    return fault


def _allocatable(lab: Lab) -> dict[str, str]:
    node = json.loads(lab.run(("kubectl", "get", "node", NODE, "-o", "json")).stdout)
    found: dict[str, str] = node["status"]["allocatable"]
    return found


def _patch_node(lab: Lab, allocatable: dict[str, str]) -> None:
    patch = json.dumps({"status": {"allocatable": allocatable}})
    lab.run(("kubectl", "patch", "node", NODE, "--subresource=status", "--type=merge", "--patch", patch))


def pod(*, name: str, labels: dict[str, str], cpu: str) -> Fault:
    """Create a pod on a node."""

    @contextlib.contextmanager
    def fault(lab: Lab) -> Iterator[schema.Site]:
        container = {
            "name": "job",
            "image": "lab/host-userland:1",
            "command": ["/bin/sleep", "600"],
            "resources": {"requests": {"cpu": cpu}},
        }
        cluster = {wellknown.LABEL_CLUSTER: site_of(lab).cluster} if labels else {}
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": labels | cluster},
            "spec": {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 0},
        }
        lab.run(("kubectl", "create", "-f", "-"), stdin=json.dumps(manifest))
        try:
            yield site_of(lab)
        finally:
            delete = ("kubectl", "delete", "pod", name, "--namespace=default", "--ignore-not-found", "--now")
            lab.run(delete)

    return fault


JOB_LABELS = {
    wellknown.LABEL_APP: wellknown.APP_VALUE,
    wellknown.LABEL_JOB_ID: "3999999",
    wellknown.LABEL_RESTART: "0",
}


@contextlib.contextmanager
def strict_namespace(lab: Lab) -> Iterator[schema.Site]:
    """A user's namespace that forbids hostPath volumes and the node's network; the site file wants both."""
    labels = {wellknown.LABEL_USER_ID: "4242", "pod-security.kubernetes.io/enforce": "restricted"}
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "user-strict", "labels": labels},
    }
    lab.run(("kubectl", "create", "-f", "-"), stdin=json.dumps(manifest))
    try:
        yield site_of(lab, partitions={"gpu": {"network": "host"}})
    finally:
        lab.run(("kubectl", "delete", "namespace", "user-strict", "--wait=false"))


@contextlib.contextmanager
def other_clock(lab: Lab) -> Iterator[schema.Site]:
    """An API server with a wrong clock."""

    class Late(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            self.send_response_only(200)
            self.send_header("Date", "Mon, 01 Jan 2001 00:00:00 GMT")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's name
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Late)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    config = lab.place.etc / "late.kubeconfig"
    address = f"http://127.0.0.1:{server.server_port}"
    config.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": address}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    try:
        yield site_of(lab, kubernetes={"admin_kubeconfig": str(config)})
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        config.unlink()


@contextlib.contextmanager
def no_api(lab: Lab) -> Iterator[schema.Site]:
    """The API server hangs."""
    name = components.DEVCLUSTER if testing.kubernetes() == spec.DEV else controlplane.APISERVER
    record = supervision.read_record(lab.place, name)
    assert record is not None
    processes.send(record.identity, signal.SIGSTOP)
    try:
        yield site_of(lab)
    finally:
        processes.send(record.identity, signal.SIGCONT)


@contextlib.contextmanager
def no_slurmctld(lab: Lab) -> Iterator[schema.Site]:
    """slurmctld is down; not killed with SIGKILL, after which it would reuse job ids."""
    storms.kill(lab, components.SLURMCTLD)
    try:
        yield site_of(lab)
    finally:
        lab.penstock("lab", "restart", components.SLURMCTLD)
        testing.until(lambda: _is_idle(lab), seconds=180)


def _is_idle(lab: Lab) -> bool:
    """Whether the node has registered with the new slurmctld."""
    return lab.run(("sinfo", "-h", "-n", NODE, "-p", "gpu", "-o", "%t")).stdout.strip() == "idle"


@contextlib.contextmanager
def mount_gone(lab: Lab) -> Iterator[schema.Site]:
    """A shared mount that was removed after the site file was written."""
    folder = lab.place.directory / "scratch"
    folder.mkdir()
    site = site_of(lab, nas={"shared_mounts": [str(folder)]})
    folder.rmdir()
    yield site


@contextlib.contextmanager
def node_deleted(lab: Lab) -> Iterator[schema.Site]:
    """A Kubernetes node that Slurm still uses was deleted."""
    node = json.loads(lab.run(("kubectl", "get", "node", NODE, "-o", "json")).stdout)
    lab.run(("kubectl", "delete", "node", NODE))
    try:
        yield site_of(lab)
    finally:
        metadata = {"name": NODE, "labels": node["metadata"]["labels"]}
        fresh = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": node.get("spec", {})}
        lab.run(("kubectl", "create", "-f", "-"), stdin=json.dumps(fresh), check=False)
        patch = json.dumps({"status": node["status"]})
        argv = ("kubectl", "patch", "node", NODE, "--subresource=status", "--type=merge", "--patch", patch)
        lab.run(argv)


@contextlib.contextmanager
def label_gone(lab: Lab) -> Iterator[schema.Site]:
    """A node has lost its GPU type's label."""
    names = sorted(crosschecks.nodes_of(site_of(lab).node_groups["workers"]))
    lab.run(("kubectl", "label", "node", *names, "gpu=a100"))
    site = site_of(
        lab, gpus={"a100": {"labels": {"gpu": "a100"}}}, node_groups={"workers": {"gpu_type": "a100"}}
    )
    lab.run(("kubectl", "label", "node", NODE, "gpu-"))
    try:
        yield site
    finally:
        lab.run(("kubectl", "label", "node", *names, "gpu-"))


def _create(lab: Lab, version: str, kind: str, metadata: dict[str, str], **fields: Any) -> None:
    manifest = {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
    lab.run(("kubectl", "create", "-f", "-"), stdin=json.dumps(manifest))


@contextlib.contextmanager
def quota_changed(lab: Lab) -> Iterator[schema.Site]:
    """A user's quota was raised by hand."""
    home = "user-quota-test"
    lab.run(("kubectl", "create", "namespace", home))
    _create(
        lab, "v1", "ResourceQuota", {"name": "penstock", "namespace": home}, spec={"hard": {"pods": "500"}}
    )
    try:
        yield site_of(lab, accounts={"research": {"users": {"quota-test": {"quota": {"pods": 5}}}}})
    finally:
        lab.run(("kubectl", "delete", "namespace", home, "--wait=false"))


@contextlib.contextmanager
def class_deleted(lab: Lab) -> Iterator[schema.Site]:
    """The PriorityClass of a partition's pods was deleted."""
    _create(lab, "scheduling.k8s.io/v1", "PriorityClass", {"name": "vanished"}, value=1)
    lab.run(("kubectl", "delete", "priorityclass", "vanished"))
    yield site_of(
        lab, priority_classes={"vanished": {"value": 1}}, partitions={"gpu": {"priority_class": "vanished"}}
    )


@contextlib.contextmanager
def other_slurm(lab: Lab) -> Iterator[schema.Site]:
    """Slurm's packages were upgraded, and the site file has the old release."""
    folder = lab.place.directory / "upgraded"
    folder.mkdir()
    program = folder / "slurmctld"
    program.write_text("#!/bin/sh\necho slurm-wlm 25.05.3\n")
    program.chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}:{before}"
    try:
        yield site_of(lab, slurm={"release": releases.text(programs.release_of(lab.place))})
    finally:
        os.environ["PATH"] = before
        shutil.rmtree(folder)


@contextlib.contextmanager
def another_cluster(lab: Lab) -> Iterator[schema.Site]:
    """The site file is of another cluster."""
    yield site_of(lab).model_copy(update={"cluster": "elsewhere"})


@contextlib.contextmanager
def no_readme(lab: Lab) -> Iterator[schema.Site]:
    """The README of the drop folder was deleted."""
    readme = lab.place.nas / wellknown.DROP_FOLDER / wellknown.DROP_README
    text = readme.read_bytes()
    readme.unlink()
    try:
        yield site_of(lab)
    finally:
        readme.write_bytes(text)


@contextlib.contextmanager
def cut_short(lab: Lab) -> Iterator[schema.Site]:
    """`penstock apply` was killed."""
    folder = lab.place.installed / "installed"
    folder.mkdir(parents=True)
    (folder / "journal.json").write_text("{}")
    try:
        yield site_of(lab)
    finally:
        shutil.rmtree(lab.place.installed)
