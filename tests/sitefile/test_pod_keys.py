"""Every key of a site file that shapes pods reaches penstockd, `explain` and `mkyaml`."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import msgspec
import pytest
from click.testing import CliRunner, Result
from pydantic import BaseModel, Field
from tests.install import sites

from penstock.cli import explain, mkinst
from penstock.daemon import settings
from penstock.model import launches
from penstock.model.podpolicy import PartitionPolicy, PodPolicy
from penstock.site import daemonsettings, loader
from penstock.site.schema import Registry, Site
from penstock.views import pods as shown_pods

SITE: dict[str, Any] = {
    "cluster": "hall",
    "slurm": {"release": "22.05"},
    "nas": {"path": "/nas", "shared_mounts": ["/scratch"]},
    "registry": {"default_image": "hub.example.org/base:1"},
    "gpus": {"a100": {"labels": {"gpu": "a100"}}},
    "node_groups": {"w": {"nodes": "n[1-2]", "cpus": 8, "memory": "32Gi", "gpus": 4, "gpu_type": "a100"}},
    "partitions": {"gpu": {"nodes": ["w"], "default": True, "tolerations": [{"key": "gpu"}]}},
    "priority_classes": {"high": {"value": 1}},
    "quota": {"cpus": 8, "memory": "32Gi", "gpus": 4, "pods": 10},
}
NAMES: dict[str, str | int] = {"gpus": "a100", "partitions": "gpu", "tolerations": 0}
"""The element that is changed, by kind."""
EVERYWHERE = frozenset({"explain", "mkyaml"})
EXPLAIN = frozenset({"explain"})
"""`mkyaml` makes instances, which have no script, no partition and no GPU type."""
MKYAML = frozenset({"mkyaml"})
"""`explain` shows pods, not the other objects of their namespace."""


class Change(NamedTuple):
    """Another value of a key, who must see it, and the script line or options that this takes."""

    value: Any
    seen_by: frozenset[str] = EVERYWHERE
    line: str = ""
    words: tuple[str, ...] = ()
    before: Any = None
    """The value before; None: that of SITE."""


NFS = {"server": "filer", "path": "/export"}
EQUAL = {"key": "gpu", "operator": "Equal", "value": "a"}
SHAPING = {
    "cluster": Change("other"),
    "kubernetes.namespace": Change("user-alice"),  # which no job may have then
    "kubernetes.namespace_pattern": Change("u{uid}"),
    "kubernetes.pod_security": Change("baseline", MKYAML),
    "kubernetes.network_policy": Change(False, MKYAML),
    "kubernetes.forbidden_directives": Change(["SHM_SIZE"], EXPLAIN, "#K8S_SHM_SIZE=1G"),
    "kubernetes.pod_commands": Change(["sinfo"], EXPLAIN, "squeue"),
    "nas.path": Change("/mnt"),
    "nas.in_pods": Change(False),
    "nas.nfs.server": Change(NFS | {"server": "other"}, before=NFS),
    "nas.nfs.path": Change(NFS | {"path": "/other"}, before=NFS),
    "nas.claim": Change("jobs"),
    "nas.shared_mounts": Change([]),
    "registry.allowed": Change(["hub.example.org"], EVERYWHERE, "#K8S_IMAGE=x:1", ("--image", "x:1")),
    "registry.default_image": Change("hub.example.org/other:1"),
    "registry.pull_policy": Change("Always"),
    "registry.pull_secrets": Change(["regcred"]),
    "gpus.*.resource": Change("amd.com/gpu"),
    "gpus.*.labels": Change({"gpu": "other"}, EXPLAIN),
    "partitions.*.mode": Change("trust", EXPLAIN),
    "partitions.*.image": Change("hub.example.org/own:1", EXPLAIN),
    "partitions.*.priority_class": Change("high", EXPLAIN),
    "partitions.*.network": Change("host", EXPLAIN),
    "partitions.*.tolerations.*.key": Change({"key": "other"}, EXPLAIN),
    "partitions.*.tolerations.*.operator": Change(EQUAL | {"operator": "Exists"}, EXPLAIN, before=EQUAL),
    "partitions.*.tolerations.*.value": Change(EQUAL | {"value": "b"}, EXPLAIN, before=EQUAL),
    "partitions.*.tolerations.*.effect": Change({"key": "gpu", "effect": "NoExecute"}, EXPLAIN),
    "partitions.*.node_selector": Change({"pool": "gpu"}, EXPLAIN),
    "partitions.*.allowed_tolerations": Change([], EXPLAIN, "#K8S_TOLERATION=spot"),
    "partitions.*.allowed_node_labels": Change([], EXPLAIN, "#K8S_NODE_SELECTOR=disk=ssd"),
    "quota.cpus": Change(16, MKYAML),
    "quota.memory": Change("64Gi", MKYAML),
    "quota.gpus": Change(8, MKYAML),
    "quota.pods": Change(20, MKYAML),
    "timeouts.kill_wait": Change(40),
}
ELSEWHERE = {
    "the reader": "version",
    "slurm.conf and the files beside it": """
        slurm.manage slurm.conf slurm.release slurm.user slurm.controller slurm.address slurm.port
        slurm.listen_on_address_only slurm.munge_socket slurm.state_dir slurm.spool_dir slurm.pid_dir
        slurm.log_dir slurm.gpu_device_dir slurm.plugin_dir slurm.max_array_size slurm.scheduler.parameters
        slurm.scheduler.memory_per_cpu slurm.scheduler.weights.age slurm.scheduler.weights.fairshare
        slurm.scheduler.weights.job_size slurm.scheduler.weights.partition slurm.scheduler.weights.qos
        slurm.scheduler.weights.decay_half_life slurm.scheduler.weights.max_age
        node_groups.*.nodes node_groups.*.selector node_groups.*.size node_groups.*.cpus node_groups.*.memory
        node_groups.*.gpus node_groups.*.gpu_type node_groups.*.features node_groups.*.reserved.cpus
        node_groups.*.reserved.memory node_groups.*.slurmd.host node_groups.*.slurmd.address
        node_groups.*.slurmd.first_port partitions.*.nodes partitions.*.default partitions.*.max_time
        partitions.*.default_time partitions.*.allow_groups partitions.*.allow_accounts partitions.*.priority
        partitions.*.qos partitions.*.preempt partitions.*.limits.max_nodes
        partitions.*.limits.max_cpus_per_node partitions.*.limits.max_memory_per_node
        timeouts.epilog timeouts.cred_expire""",
    "slurmdbd.conf": """
        slurm.accounting.host slurm.accounting.address slurm.accounting.port slurm.accounting.enforce
        slurm.accounting.database slurm.accounting.database_host slurm.accounting.database_user
        slurm.accounting.password_file""",
    "the hooks": """
        slurm.pam_file slurm.commands_dir penstockd.libexec penstockd.socket penstockd.root_may_submit
        penstockd.submit_filter nas.missing_workdir timeouts.admit timeouts.release""",
    "penstockd.json, beside the policy": """
        kubernetes.access kubernetes.service_account_dir kubernetes.kubeconfig penstockd.metrics_port
        penstockd.log_level penstockd.log_format nas.results results.state_dir timeouts.start""",
    "intake.json": """
        nas.drop intake.config intake.state_dir intake.status intake.workdir intake.settle_seconds
        intake.max_file_size intake.in_flight_per_user""",
    "collector.json": "results.config results.max_bytes results.max_files results.hook results.webhook",
    "objects that `penstock apply` creates": """
        registry.prepull nas.size nas.storage_class nas.provisioner
        priority_classes.*.value priority_classes.*.preempts
        accounts.*.quota.cpus accounts.*.quota.memory accounts.*.quota.gpus accounts.*.quota.pods
        accounts.*.users.*.quota.cpus accounts.*.users.*.quota.memory accounts.*.users.*.quota.gpus
        accounts.*.users.*.quota.pods kubernetes.api penstockd.image penstockd.node penstockd.host_paths""",
    "the accounting": """
        accounts.*.users.*.gpu_hours accounts.*.users.*.fairshare accounts.*.fairshare accounts.*.gpu_hours
        accounts.*.cpu_hours""",
    "`penstock apply` and `doctor` themselves": """
        slurm.restart kubernetes.admin_kubeconfig kubernetes.context penstockd.run penstockd.config
        penstockd.state_dir penstockd.units penstockd.program penstockd.restart""",
}


def keys(part: type[BaseModel], above: str = "") -> Iterator[str]:
    """All keys of the schema; a star stands for names, as of groups and partitions."""
    for name, field in part.model_fields.items():
        inner, many = inner_part(field.annotation), get_origin(field.annotation) in (dict, tuple)
        below = f"{above}{name}.*." if many else f"{above}{name}."
        yield from keys(inner, below) if inner else (f"{above}{name}",)


def inner_part(annotation: Any) -> type[BaseModel] | None:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(inner_part, get_args(annotation))), None)


def unaccounted(schema: type[BaseModel]) -> set[str]:
    """Keys that are in neither list, or not in the schema."""
    elsewhere = {key for listed in ELSEWHERE.values() for key in listed.split()}
    assert not elsewhere & SHAPING.keys()
    return set(keys(schema)) ^ (elsewhere | SHAPING.keys())


def test_every_key_is_listed() -> None:
    """A new key goes into SHAPING or ELSEWHERE."""
    assert unaccounted(Site) == set()


def test_new_key_is_noticed() -> None:
    class NewRegistry(Registry):
        mirror: Annotated[str, Field(description="New.")] = ""

    class NewSite(Site):
        registry: NewRegistry = NewRegistry()
        pods: dict[str, NewRegistry]

    assert {"registry.mirror", "pods.*.mirror"} < unaccounted(NewSite)


def site_with(key: str, value: Any) -> Site:
    """SITE with another value of a key, or of the mapping that it is in; None leaves it unchanged."""
    document = copy.deepcopy(SITE)
    words = key.split(".")
    place = [
        NAMES[before] if word == "*" else word for before, word in zip(("", *words), words, strict=False)
    ]
    if isinstance(value, dict) and place[-1] in value:
        place.pop()
    parent: Any = document
    for step in place[:-1]:
        parent = parent.setdefault(step, {}) if isinstance(parent, dict) else parent[step]
    if value is not None:
        parent[place[-1]] = value
    return loader.loads(json.dumps(document).encode())


def policy_of(site: Site) -> PodPolicy:
    """The policy that penstockd reads."""
    document = json.dumps(daemonsettings.penstockd(site, slurm_uid=64030)).encode()
    return msgspec.json.decode(document, type=settings.Settings).pods


class Shown(NamedTuple):
    """Output of each command."""

    explain: str
    mkyaml: str


def shown(site: Site, change: Change, folder: Path) -> Shown:
    view = daemonsettings.view(site, sites.known(site, existing=None).groups, release=(22, 5))
    (folder / "site.json").write_bytes(msgspec.json.encode(view))
    (folder / "job.sh").write_text(f"#!/bin/sh\n#SBATCH --gres=gpu:1 --chdir=/scratch\n{change.line}\n")
    words = ("gpu1", "std", "alice", "--job-id", "17", *change.words)
    explained = CliRunner().invoke(
        explain.explain, ["--site", f"{folder}/site.json", "--format", "json", f"{folder}/job.sh"]
    )
    found = json.loads(explained.stdout or "{}")
    pods = json.dumps([found["pods"], found["remarks"]]) if found else said(explained)
    made = CliRunner().invoke(mkinst.mkyaml, ["--site", f"{folder}/site.json", *words])
    return Shown(pods, made.stdout or said(made))


def said(result: Result) -> str:
    return str(getattr(result.exception, "message", result.exception))


@pytest.fixture(autouse=True)
def _alice(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = launches.Owner(name="alice", uid=1001, gid=1001, groups=(), home="/home/alice")
    monkeypatch.setattr(shown_pods, "owner_named", lambda name="": owner)


@pytest.mark.parametrize("key", SHAPING)
def test_key_reaches_penstockd_and_the_commands(key: str, tmp_path: Path) -> None:
    """A change of the key changes penstockd's policy, and the output of exactly the listed commands."""
    change = SHAPING[key]
    before, after = site_with(key, change.before), site_with(key, change.value)
    assert policy_of(before) != policy_of(after), "penstockd does not see it"
    first, second = shown(before, change, tmp_path), shown(after, change, tmp_path)
    assert '"kind": "Pod"' in first.explain
    assert "kind: Pod" in first.mkyaml
    seen = {name for name in Shown._fields if getattr(first, name) != getattr(second, name)}
    assert seen == change.seen_by


def test_every_field_of_the_policy_comes_from_the_site_file() -> None:
    """Except for qos_priority_classes, which only penstockd.json has."""
    site, partition = set[str](), set[str]()
    for key, change in SHAPING.items():
        first, second = (policy_of(site_with(key, value)) for value in (change.before, change.value))
        site |= differing(first, second)
        partition |= differing(first.partition("gpu"), second.partition("gpu"))
    assert set(PodPolicy.__struct_fields__) - site == {"qos_priority_classes"}
    assert partition == set(PartitionPolicy.__struct_fields__)


def differing(one: msgspec.Struct, other: msgspec.Struct) -> set[str]:
    return {name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name)}
