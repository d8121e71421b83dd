"""Checks of Kubernetes: the API, penstockd's permissions, nodes and their sizes, namespaces, quotas."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock import errors, wellknown
from penstock.doctor.checks import Problem, Registry, Skip
from penstock.doctor.live import Live
from penstock.install import kubeadmin
from penstock.kube import kinds
from penstock.model import resources
from penstock.render import manifests, rbac
from penstock.site import kubeobjects, policies, sitenamespaces
from penstock.site.scalars import mebibytes

registry = Registry()
LARGEST_SKEW = 5.0
NEARLY_FULL = 0.95
WELL_USED = 0.75
"""Slurm should use at least this share of a node, including what is reserved."""
ENFORCE = "pod-security.kubernetes.io/enforce"


@registry.add("kubernetes", "the Kubernetes API answers")
def kubernetes(live: Live) -> Iterator[Problem]:
    if not live.kube_nodes:
        yield Problem("the cluster has no nodes", "is this the right kubeconfig?")


@registry.add("kubeconfig", "penstockd's kubeconfig exists, is private and works")
def kubeconfig(live: Live) -> Iterator[Problem]:
    if live.site.kubernetes.access == kubeadmin.IN_CLUSTER:
        raise Skip("penstockd is a pod with its own token")
    path = Path(live.site.kubernetes.kubeconfig)
    if not path.exists():
        yield Problem(f"{path} is missing", "`penstock apply` creates it")
        return
    if path.stat().st_mode & 0o004:
        fix = functools.partial(path.chmod, 0o600)
        message = f"{path} is readable by everybody, and it gives access to the pods of all jobs"
        yield Problem(message, f"chmod 600 {path}", fix=fix)
    live.as_penstockd.ask(lambda kube: kube.list(kinds.NODES, limit=1))


@registry.add("rbac", "penstockd has every permission that it needs")
def rights(live: Live) -> Iterator[Problem]:
    missing = [f"{verb} {resource}" for resource, verb in rbac.pairs() if not _may(live, resource, verb)]
    if missing:
        yield Problem(f"penstockd may not: {', '.join(missing)}", "`penstock apply` grants its role")


def _may(live: Live, resource: str, verb: str) -> bool:
    """Ask as penstockd, or as administrator about its account if only its pod has the token."""
    name, _, sub = resource.partition("/")
    plural, _, group = name.partition(".")
    attributes = {"resource": plural, "group": group, "verb": verb} | ({"subresource": sub} if sub else {})
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    if live.site.kubernetes.access != kubeadmin.IN_CLUSTER:
        answer = live.as_penstockd.create({**review, "spec": {"resourceAttributes": attributes}})
    else:
        user = f"system:serviceaccount:{live.site.kubernetes.namespace}:{kubeobjects.ACCOUNT}"
        spec = {"resourceAttributes": attributes, "user": user}
        answer = live.cluster.create({**review, "kind": "SubjectAccessReview", "spec": spec})
    status = answer.get("status")
    if not isinstance(status, dict) or not isinstance(status.get("allowed"), bool):
        raise errors.KubeUnavailable("the Kubernetes API gave no answer to an access review")
    return bool(status["allowed"])


@registry.add("clock", "the clocks of this host and of Kubernetes agree")
def clock(live: Live) -> Iterator[Problem]:
    if abs(live.clock_offset) > LARGEST_SKEW:
        yield Problem(
            f"Kubernetes' clock differs from this host's by {live.clock_offset:+.0f} s",
            "run NTP on both: munge credentials and tokens are refused when clocks differ",
        )


@registry.add("node-names", "every node of a bridged partition exists in Kubernetes")
def node_names(live: Live) -> Iterator[Problem]:
    for name in live.bridged_nodes:
        if name not in live.kube_nodes:
            remedy = "names must be the same on both sides: compare `kubectl get nodes` with the site file"
            yield Problem("Kubernetes has no node {nodes}", remedy, nodes=(name,))


@registry.add("node-ready", "Kubernetes' nodes are Ready and schedulable")
def node_ready(live: Live) -> Iterator[Problem]:
    for name in live.bridged_nodes:
        node = live.kube_nodes.get(name)
        if node is not None and not node.ready:
            yield Problem(
                "{nodes} is not Ready in Kubernetes", "kubectl describe node {node}", True, nodes=(name,)
            )
        elif node is not None and node.spec.unschedulable:
            yield Problem("{nodes} is cordoned in Kubernetes", "kubectl uncordon {node}", True, nodes=(name,))


@registry.add("node-sizes", "node sizes in Slurm match what is allocatable in Kubernetes")
def node_sizes(live: Live) -> Iterator[Problem]:
    for node, allocatable in live.shared_nodes():
        for short in node.amount.shortages(allocatable):
            if short.what in ("cpu", "memory"):
                message = f"{short.what} is {short.needed} in Slurm, {short.free} allocatable in Kubernetes"
                remedy = "jobs that need all of it never start: set `reserved` of the node group"
                yield Problem(f"{{nodes}}: {message}", remedy, nodes=(node.name,))
        for unused in _unused(node.amount, allocatable, _reserved(live, node.name)):
            message = f"{unused.what} is {unused.free} in Slurm, {unused.needed} allocatable in Kubernetes"
            remedy = "correct the node's size in the site file or slurm.conf, or put the rest into `reserved`"
            yield Problem(f"{{nodes}}: {message}: the rest is idle", remedy, True, nodes=(node.name,))


def _unused(
    claim: resources.Amount, allocatable: resources.Amount, reserved: resources.Amount
) -> Iterator[resources.Shortage]:
    """Resources of which Slurm uses too little. Fractions of a CPU do not count: Slurm has whole CPUs."""
    used = claim + reserved
    idle = {
        "cpu": used.millicpus < allocatable.millicpus // 1000 * 1000 * WELL_USED,
        "memory": used.memory < allocatable.memory * WELL_USED,
    }
    return (short for short in allocatable.shortages(claim) if idle.get(short.what))


def _reserved(live: Live, node: str) -> resources.Amount:
    for name, group in live.site.node_groups.items():
        if any(node == each.name for each in live.facts.groups.get(name, ())):
            memory = mebibytes(group.reserved.memory) * 2**20
            return resources.Amount(millicpus=group.reserved.cpus * 1000, memory=memory)
    return resources.Amount()


@registry.add("node-gpus", "Kubernetes has the GPUs that Slurm schedules")
def node_gpus(live: Live) -> Iterator[Problem]:
    for node, allocatable in live.shared_nodes():
        for short in node.amount.shortages(allocatable):
            if short.what in ("cpu", "memory"):
                continue
            resource = wellknown.GPU_RESOURCE if short.what == "gpu" else short.what
            yield Problem(
                f"{{nodes}}: {short.needed} GPUs in Slurm, {short.free} {resource} in Kubernetes",
                f"is the device plugin for {resource} running there?",
                nodes=(node.name,),
            )


@registry.add("gpu-labels", "nodes carry the labels of their GPU type")
def gpu_labels(live: Live) -> Iterator[Problem]:
    if not any(gpu.labels for gpu in live.site.gpus.values()):
        raise Skip("no GPU type has labels")
    for name, node in live.bridged_nodes.items():
        wanted = live.site.gpus[node.gpu_type].labels if node.gpu_type in live.site.gpus else {}
        found = live.kube_nodes[name].metadata.labels if name in live.kube_nodes else {}
        for key, value in wanted.items():
            if found.get(key) != value:
                remedy = f"kubectl label node {{node}} {key}={value}"
                yield Problem(f"{{nodes}} has no label {key}={value}", remedy, nodes=(name,))


@registry.add("pod-security", "users' namespaces admit jobs' pods")
def pod_security(live: Live) -> Iterator[Problem]:
    nas, policy = live.site.nas, policies.resolved(live.site)
    needs: dict[str, str] = {}
    if nas is not None and nas.in_pods and not nas.nfs and not nas.claim:
        needs["mounting the NAS by hostPath"] = "set `nas.nfs`"
    if any(partition.network == "host" for partition in policy.partitions.values()):
        needs["pods with the node's network"] = "set `network: pod`"
    for name, namespace in user_namespaces(live).items():
        level = (namespace["metadata"].get("labels") or {}).get(ENFORCE, "privileged")
        for need, instead in needs.items() if level != "privileged" else ():
            yield Problem(
                f"namespace {name} enforces {level}, which forbids {need}",
                f"kubectl label namespace {name} {ENFORCE}=privileged --overwrite, or {instead}",
            )


def user_namespaces(live: Live) -> dict[str, dict[str, Any]]:
    """Namespaces of jobs: created by penstockd, or named in the site file."""
    named = sitenamespaces.all_homes(live.site)
    ours = {wellknown.LABEL_USER_ID, wellknown.LABEL_ACCOUNT}
    return {
        name: namespace
        for name, namespace in live.namespaces.items()
        if name in named or ours & (namespace["metadata"].get("labels") or {}).keys()
    }


@registry.add("quotas", "quotas of users are as in the site file and not exhausted")
def quotas(live: Live) -> Iterator[Problem]:
    for home, quota in sitenamespaces.all_homes(live.site).items():
        if quota is None or home not in live.namespaces:
            continue
        found = live.cluster.get(manifests.quota(home, {}))
        wanted = policies.hard(live.site, quota)
        if found is None or found["spec"]["hard"] != wanted:
            yield Problem(f"the quota of namespace {home} differs from the site file", "`penstock apply`")
            continue
        for what, limit in found["spec"]["hard"].items():
            used = found.get("status", {}).get("used", {}).get(what, "0")
            if resources.quantity(used) > resources.quantity(limit) * NEARLY_FULL:
                yield Problem(f"{home} uses {used} of {limit} {what}", "raise the quota, or wait", True)


@registry.add("priority-classes", "PriorityClasses of partitions exist")
def priority_classes(live: Live) -> Iterator[Problem]:
    wanted = sorted({each.priority_class for each in live.site.partitions.values() if each.priority_class})
    if not wanted:
        raise Skip("no partition has a priority class")
    for name in wanted:
        if live.cluster.get(manifests.priority_class(name, value=0, preempts=False)) is None:
            yield Problem(f"PriorityClass {name} does not exist: pods are refused", "`penstock apply`")
