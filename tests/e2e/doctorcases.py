"""Faults that occur at sites, made temporarily in a lab, and the findings that the doctor must report.

All but those in SITE_FILE_FAULTS are made in the live site; those are errors of the site file itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.e2e import sitefaults as faults
from tests.e2e.temporaryfaults import (
    NODE,
    Fault,
    Lab,
    changed,
    commands,
    its_kubeconfig,
    killed,
    mode,
    moved,
    said,
    setting_changed,
)

from penstock import wellknown


def hook(name: str) -> Callable[[Lab], Path]:
    return lambda lab: lab.place.libexec / name


CASES: dict[str, tuple[Fault, str, str]] = {
    # name: how to make it, the check that finds it, part of its message
    "another Slurm": (faults.other_slurm, "slurm-release", "but 25.05 is installed"),
    "another cluster": (faults.another_cluster, "cluster-name", "the site file says elsewhere"),
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
    "slurmctld away": (faults.no_slurmctld, "slurmctld", "slurmctld does not answer"),
    "hook away": (moved(hook(wellknown.EPILOG)), "hooks-installed", "penstock-epilog is missing"),
    "hook not executable": (
        mode(hook(wellknown.PROLOG), 0o644),
        "hooks-executable",
        "not executable",
    ),
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
    "mount away": (faults.mount_gone, "shared-mounts", "/scratch does not exist"),
    "API away": (faults.no_api, "kubernetes", "does not answer"),
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
    "clock off": (faults.other_clock, "clock", "clock differs from this host's by"),
    "node unknown to Kubernetes": (faults.node_deleted, "node-names", "Kubernetes has no node n4"),
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
        "differ from the site file: n4",
    ),
    "node cordoned": (
        commands(("kubectl", "cordon", NODE), ("kubectl", "uncordon", NODE)),
        "node-ready",
        "n4 is cordoned",
    ),
    "node too large": (
        faults.node_has({"cpu": "64"}),
        "node-sizes",
        "cpu is 8 in Slurm, 64 allocatable in Kubernetes",
    ),
    "node too small": (
        faults.node_has({"cpu": "4"}),
        "node-sizes",
        "cpu is 8 in Slurm, 4 allocatable in Kubernetes",
    ),
    "GPUs away": (
        faults.node_has({wellknown.GPU_RESOURCE: "1"}),
        "node-gpus",
        "4 GPUs in Slurm, 1 nvidia.com/gpu in Kubernetes",
    ),
    "GPU label away": (faults.label_gone, "gpu-labels", "n4 has no label gpu=a100"),
    "namespace too strict": (faults.strict_namespace, "pod-security", "user-strict enforces restricted"),
    "namespace without the node's network": (
        faults.strict_namespace,
        "pod-security",
        "forbids pods with the node's network",
    ),
    "quota changed": (
        faults.quota_changed,
        "quotas",
        "the quota of namespace user-quota-test differs from the site file",
    ),
    "PriorityClass away": (faults.class_deleted, "priority-classes", "PriorityClass vanished does not exist"),
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
    "socket closed": (
        mode(lambda lab: lab.place.penstockd_socket, 0o600),
        "socket",
        "launchers have no access to",
    ),
    "socket's folder closed": (
        mode(lambda lab: lab.place.penstockd_run, 0o700),
        "socket",
        "users cannot reach",
    ),
    "NAS away": (moved(lambda lab: lab.place.nas), "nas", "/nas does not exist"),
    "drop folder closed": (
        mode(lambda lab: lab.place.nas_submit, 0o755),
        "nas-folders",
        "has mode 755",
    ),
    "no README in the drop folder": (faults.no_readme, "drop-readme", "README.txt is missing"),
    "results folder away": (
        moved(lambda lab: lab.place.nas / "results"),
        "nas-folders",
        "/results is missing",
    ),
    "pod without a job": (
        faults.pod(name="left-over", labels=faults.JOB_LABELS, cpu="1"),
        "orphans",
        "left-over belongs to job 3999999, which is over",
    ),
    "node promised twice": (
        faults.pod(name="left-over", labels=faults.JOB_LABELS, cpu="1"),
        "double-booking",
        "pods of jobs request cpu 1, Slurm allocated 0",
    ),
    "somebody else's pod": (faults.pod(name="guest", labels={}, cpu="2"), "foreign-pods", "cpu 6 of 8"),
    "apply cut short": (faults.cut_short, "apply", "was interrupted"),
}

SITE_FILE_FAULTS = ("SlurmUser is another", "node unknown to both", "another cluster")
