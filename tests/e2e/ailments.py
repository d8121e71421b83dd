"""Faults of sites, caused in a lab and repaired again, and what the doctor must report for each.

Those in SAID are mistakes in the site file itself; all others are made in the live site.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.e2e import storms
from tests.e2e.ailing import (
    NODE,
    Ailment,
    Lab,
    changed,
    commands,
    its_kubeconfig,
    killed,
    mode,
    moved,
    said,
    setting_changed,
    site_of,
)
from tests.e2e.kubeailments import (
    JOB_LABELS,
    class_deleted,
    label_gone,
    node_deleted,
    node_has,
    pod,
    quota_changed,
    strict_namespace,
)

from penstock import wellknown
from penstock.model import releases
from penstock.site import schema
from penstock_lab import components, processes, spec, supervision, testing
from penstock_lab.kubernetes import controlplane
from penstock_lab.slurm import programs


@contextlib.contextmanager
def other_clock(lab: Lab) -> Iterator[schema.Site]:
    """An API server whose clock is wrong."""

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
    """slurmctld is stopped; not by SIGKILL, after which it would reuse job ids."""
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
    """A shared mount that existed when the site file was written."""
    folder = lab.place.directory / "scratch"
    folder.mkdir()
    site = site_of(lab, nas={"shared_mounts": [str(folder)]})
    folder.rmdir()
    yield site


@contextlib.contextmanager
def other_slurm(lab: Lab) -> Iterator[schema.Site]:
    """Slurm was upgraded, and the site file names the old release."""
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
    """A site file of another cluster."""
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
    """`penstock apply` was interrupted."""
    folder = lab.place.installed / "installed"
    folder.mkdir(parents=True)
    (folder / "journal.json").write_text("{}")
    try:
        yield site_of(lab)
    finally:
        shutil.rmtree(lab.place.installed)


def hook(name: str) -> Callable[[Lab], Path]:
    return lambda lab: lab.place.libexec / name


AILMENTS: dict[str, tuple[Ailment, str, str]] = {
    # what is wrong: how it is done, which check finds it, what it must say
    "another Slurm": (other_slurm, "slurm-release", "but 25.05 is installed"),
    "another cluster": (another_cluster, "cluster-name", "the site file says elsewhere"),
    "slurm.conf changed, slurmctld not told": (
        changed(lambda lab: lab.place.slurm_conf, b"MaxStepCount=39999\n"),
        "slurm-restarted",
        "changed after slurmctld had read it",
    ),
    "slurmctld not restarted": (
        setting_changed("KillWait=30", "KillWait=31"),
        "slurm-restarted",
        "KillWait=31, it runs with 30 sec",
    ),
    "munge away": (moved(lambda lab: lab.place.munge_socket), "munge", "does not work"),
    "slurmctld away": (no_slurmctld, "slurmctld", "slurmctld does not answer"),
    "hook away": (moved(hook(wellknown.EPILOG)), "hooks-installed", "penstock-epilog is missing"),
    "hook not executable": (mode(hook(wellknown.PROLOG), 0o644), "hooks-executable", "not executable"),
    "hook of another version": (
        changed(hook("penstock_hooks/launch.py")),
        "hooks-current",
        "another version",
    ),
    "foreign job_submit.lua": (
        changed(lambda lab: lab.place.etc / wellknown.JOB_SUBMIT, b"-- mine\n"),
        "job-submit",
        "is not Penstock's",
    ),
    "edited gres.conf": (
        changed(lambda lab: lab.place.gres_conf),
        "slurm-files",
        "differs from what the site file renders",
    ),
    "edited settings": (
        changed(lambda lab: lab.place.penstockd_conf, b" "),
        "penstockd-config",
        "differs from what the site file renders",
    ),
    "node drained": (
        commands(
            ("scontrol", "update", f"NodeName={NODE}", "State=DRAIN", "Reason=fan broken"),
            ("scontrol", "update", f"NodeName={NODE}", "State=RESUME"),
        ),
        "drained",
        "fan broken",
    ),
    "SlurmUser is another": (said(slurm={"user": "root"}), "slurm-user", "the site file says root"),
    "mount away": (mount_gone, "shared-mounts", "/scratch does not exist"),
    "API away": (no_api, "kubernetes", "does not answer"),
    "administrator's kubeconfig away": (
        moved(lambda lab: lab.place.admin_kubeconfig),
        "kubernetes",
        "cannot read kubeconfig",
    ),
    "kubeconfig for all to read": (
        mode(its_kubeconfig, 0o644),
        "kubeconfig",
        "is readable by everybody",
    ),
    "kubeconfig away": (moved(its_kubeconfig), "kubeconfig", "is missing"),
    "clock off": (other_clock, "clock", "differs from this host's"),
    "node unknown to Kubernetes": (node_deleted, "node-names", "Kubernetes has no node n4"),
    "node unknown to both": (
        said(node_groups={"workers": {"nodes": "n[1-5]"}}),
        "drained",
        "Slurm has no node n5",
    ),
    "partition without its nodes": (
        commands(
            ("scontrol", "update", "PartitionName=cpu", "Nodes=n1,n2,n3"),
            ("scontrol", "update", "PartitionName=cpu", "Nodes=n1,n2,n3,n4"),
        ),
        "partitions",
        "nodes of partition cpu differ from the site file: n4",
    ),
    "node cordoned": (
        commands(("kubectl", "cordon", NODE), ("kubectl", "uncordon", NODE)),
        "node-ready",
        "n4 is cordoned",
    ),
    "node too large": (
        node_has({"cpu": "64"}),
        "node-sizes",
        "cpu is 8 in Slurm, 64 allocatable in Kubernetes",
    ),
    "node too small": (node_has({"cpu": "4"}), "node-sizes", "cpu is 8 in Slurm, 4 allocatable"),
    "GPUs away": (node_has({wellknown.GPU_RESOURCE: "1"}), "node-gpus", "4 GPUs in Slurm, 1 nvidia.com/gpu"),
    "GPU label away": (label_gone, "gpu-labels", "n4 has no label gpu=a100"),
    "namespace too strict": (strict_namespace, "pod-security", "user-strict enforces restricted"),
    "quota changed": (
        quota_changed,
        "quotas",
        "the quota of namespace user-quota-test differs from the site file",
    ),
    "PriorityClass away": (class_deleted, "priority-classes", "PriorityClass vanished does not exist"),
    "penstockd killed": (killed("penstockd"), "penstockd", "penstockd does not answer"),
    "penstockd not restarted": (
        changed(lambda lab: lab.place.penstockd_conf, b" "),
        "penstockd-settings",
        "penstockd runs with older settings",
    ),
    "intake not restarted": (
        changed(lambda lab: lab.place.intake_conf, b" "),
        "intake",
        "the intake runs with older settings",
    ),
    "collector not restarted": (
        changed(lambda lab: lab.place.collector_conf, b" "),
        "collector",
        "the collector runs with older settings",
    ),
    "intake away": (killed("intake"), "intake", "the intake does not run"),
    "collector away": (killed("collector"), "collector", "the collector does not run"),
    "socket closed": (mode(lambda lab: lab.place.penstockd_socket, 0o600), "socket", "have no access"),
    "socket's folder closed": (
        mode(lambda lab: lab.place.penstockd_run, 0o700),
        "socket",
        "users cannot reach",
    ),
    "NAS away": (moved(lambda lab: lab.place.nas), "nas", "/nas does not exist"),
    "drop folder closed": (mode(lambda lab: lab.place.nas_submit, 0o755), "nas-folders", "has mode 755"),
    "no README in the drop folder": (no_readme, "drop-readme", "README.txt is missing"),
    "results folder away": (
        moved(lambda lab: lab.place.nas / "results"),
        "nas-folders",
        "/results is missing",
    ),
    "pod without a job": (
        pod(name="left-over", labels=JOB_LABELS, cpu="1"),
        "orphans",
        "left-over belongs to job 3999999, which is over",
    ),
    "node promised twice": (
        pod(name="left-over", labels=JOB_LABELS, cpu="1"),
        "double-booking",
        "pods of jobs request cpu 1, Slurm allocated 0",
    ),
    "somebody else's pod": (pod(name="guest", labels={}, cpu="2"), "foreign-pods", "cpu 6 of 8"),
    "apply interrupted": (cut_short, "apply", "was interrupted"),
}

SAID = ("SlurmUser is another", "node unknown to both", "another cluster")
"""Mistakes in the site file itself."""
