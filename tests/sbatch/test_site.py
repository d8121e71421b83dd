"""Checks of a job against a site, and lint."""

from __future__ import annotations

import msgspec
import pytest

from penstock.model.podpolicy import PartitionPolicy, PodPolicy
from penstock.model.siteview import NodeKind, PartitionView, SiteView
from penstock.sbatch import compiler

SITE = SiteView(
    partitions={"gpu": PartitionView(max_time="7-0", default=True), "cpu": PartitionView(max_time="1-0")},
    nodes=(
        NodeKind(
            count=4, cpus=8, memory_mib=32768, gpus=4, gpu_type="a100", partitions=("gpu",), features=("ib",)
        ),
        NodeKind(count=2, cpus=64, memory_mib=65536, partitions=("cpu",)),
    ),
    pods=PodPolicy(
        allowed_images=("hub.local:5000",),
        forbidden_directives=("MOUNT",),
        partitions={"gpu": PartitionPolicy(), "cpu": PartitionPolicy()},
    ),
    max_array_size=101,
)


def codes(options: str, *lines: str, lint: bool = False, silenced: tuple[str, ...] = ()) -> list[str]:
    """Codes of the diagnostics for these options and #K8S_ lines."""
    script = f"#!/bin/sh\n#SBATCH {options}\n" + "".join(f"#K8S_{line}\n" for line in lines)
    context = compiler.Context(site=SITE, lint=lint)
    done = compiler.compile_script(script.encode(), context=context, silenced=silenced)
    return [found.code for found in done.diagnostics]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("-p gpuu", "unknown-partition"),
        ("-p gpu,nope", "unknown-partition"),
        ("-t 7-1", "over-max-time"),
        ("-t UNLIMITED", "over-max-time"),
        ("-p cpu -t 25:00:00", "over-max-time"),
        ("--gres=gpu:h100:1", "unknown-gpu-type"),
        ("--gres=gpu:5", "never-fits"),
        ("--gpus-per-task=5 -n1", "never-fits"),
        ("-c 9", "never-fits"),
        ("--mem=33G", "never-fits"),
        ("--mem-per-cpu=5G -c8", "never-fits"),
        ("-N 5", "never-fits"),
        ("-p cpu --gres=gpu:1", "never-fits"),
        ("--gpus=8 -N1", "never-fits"),
        ("--gpus=8 -n1", "never-fits"),
        ("--gpus=8 --ntasks-per-node=1", "never-fits"),
        ("--gpus=10 -N1-2", "never-fits"),
        ("--gpus=17", "never-fits"),
        ("-n 33", "never-fits"),
        ("-C nope", "unknown-feature"),
        ("--array=0-101", "array-too-large"),
        ("--array=101", "array-too-large"),
        ("--array=0-5:101", "array-too-large"),
        ("--array=1,0-5:101%2", "array-too-large"),
    ],
)
def test_impossible_jobs_are_errors(options: str, code: str) -> None:
    assert codes(options) == [code]


@pytest.mark.parametrize(
    "options",
    [
        "-p gpu",
        "-t 7-0",
        "--gres=gpu:a100:4",
        "-c 8 --mem=32G",
        "-N 4",
        "-n 32",
        "-C ib",
        "--array=0-100",
        "--array=0-5:100",
        "-p cpu -c 64",
        "--gpus=8",
        "--gpus=8 -N1-2",
        "--gpus=8 -n2",
        "--gpus=8 -c2 --mem=30G",
        "--gpus=8 --cpus-per-gpu=3",
        "--gpus=16 --exclusive",
        "-n 33 --overcommit",
    ],
)
def test_possible_jobs_are_accepted(options: str) -> None:
    """However long they may wait."""
    assert codes(options, silenced=("idle-pods",)) == []


def test_forbidden_images_and_directives_are_errors() -> None:
    assert codes("-N1", "IMAGE=hub.local:5000/a") == []
    assert codes("-N1", "IMAGE=docker.io/a") == ["forbidden-registry"]
    assert codes("-N1", "IMAGE=a") == ["forbidden-registry"]
    assert codes("-N1", "MOUNT=/a") == ["forbidden-directive"]


def test_node_requests_are_limited_by_the_site() -> None:
    """In mode check all are allowed by default, in mode trust none."""
    partitions = {
        "free": PartitionPolicy(),
        "some": PartitionPolicy(allowed_tolerations=("spot",), allowed_node_labels=("disk=ssd", "zone")),
        "none": PartitionPolicy(mode="trust"),
        "few": PartitionPolicy(mode="trust", allowed_node_labels=("disk",)),
    }
    site = SiteView(
        partitions=dict.fromkeys(partitions, PartitionView()), pods=PodPolicy(partitions=partitions)
    )
    context = compiler.Context(site=site)
    script = b"#!/bin/sh\n#K8S_TOLERATION=spot\n#K8S_NODE_SELECTOR=disk=ssd\n#K8S_NODE_SELECTOR=zone=a\n"
    for partition, count in (("free", 0), ("some", 0), ("none", 3), ("few", 2), ("free,none", 3)):
        done = compiler.compile_script(script, arguments=["-p", partition], context=context)
        assert [found.code for found in done.diagnostics] == ["forbidden-placement"] * count
    other = b"#!/bin/sh\n#K8S_NODE_SELECTOR=disk=hdd\n"
    (found,) = compiler.compile_script(other, arguments=["-p", "some"], context=context).diagnostics
    assert (found.line, found.hint) == (2, "allowed in this partition: disk=ssd, zone")


def test_image_of_the_partition_is_checked() -> None:
    """Or the site's default."""
    image = "docker.io/a"
    policy = PodPolicy(
        allowed_images=("hub",), partitions={"a": PartitionPolicy(image=image), "b": PartitionPolicy()}
    )
    site = SiteView(partitions={"a": PartitionView(), "b": PartitionView()}, pods=policy)
    context = compiler.Context(site=site)
    for partition, count in (("a", 1), ("b", 0), ("a,b", 1)):
        done = compiler.compile_script(b"#!/bin/sh\n", arguments=["-p", partition], context=context)
        assert [found.code for found in done.diagnostics] == ["forbidden-registry"] * count


LOOSE = msgspec.structs.replace(
    SITE,
    complete=False,
    partitions=SITE.partitions
    | {name: PartitionView(whole=False, max_time="1-0") for name in ("old", "older")},
)


def severities(options: str, site: SiteView | None = LOOSE) -> list[tuple[str, str]]:
    """Severities and codes at a site that is not completely known."""
    context = compiler.Context(site=site, other_gres=True)
    done = compiler.compile_script(f"#!/bin/sh\n#SBATCH {options}\n".encode(), context=context)
    return [(found.severity, found.code) for found in done.diagnostics]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("-p gpuu -c 99", "unknown-partition"),
        ("-p gpu,nope -c 99", "unknown-partition"),
        ("-C nope", "unknown-feature"),
        ("--gres=gpu:h100:1", "unknown-gpu-type"),
        ("--gres=lscratch:100", "unknown-gres"),
        ("--gres=gpus:1,gpu:1", "unknown-gres"),
    ],
)
def test_unknown_names_are_warnings_at_an_incomplete_site(options: str, code: str) -> None:
    """slurm.conf may define them."""
    assert severities(options) == [("warning", code)]


@pytest.mark.parametrize(
    "options", ["-p old -c 99 -C x --gres=gpu:h100:9", "-p old,older -c 99", "-p old -N 99"]
)
def test_unknown_nodes_are_not_checked(options: str) -> None:
    """Of a partition in slurm.conf only the times are known."""
    assert severities(options) == []
    assert {code for _, code in severities(f"{options} -t 9-0")} == {"over-max-time"}


def test_known_limits_are_errors_at_an_incomplete_site() -> None:
    """Sizes of our own nodes, and invalid GRES names."""
    assert severities("-c 9") == [("error", "never-fits")]
    assert severities("--gres=gpu=2")[0][0] == "error"


@pytest.mark.parametrize("options", ["--gres=lscratch:100", "--gres=gpu:1,lscratch:1"])
def test_unknown_gres_is_a_warning_without_a_site(options: str) -> None:
    """GresTypes are unknown."""
    assert severities(options, site=None) == [("warning", "unknown-gres")]


def test_time_allowed_by_one_partition_is_accepted() -> None:
    """The job waits for that one (EnforcePartLimits=NO)."""
    context = compiler.Context(site=SITE)
    done = compiler.compile_script(b"#!/bin/sh\n#SBATCH -p cpu,gpu -t 2-0\n", context=context)
    assert done.ok
    assert [found.code for found in done.diagnostics] == ["over-max-time"]
    assert codes("-p cpu,gpu -t 8-0") == ["over-max-time", "over-max-time"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("-N1", "no-time-limit"),
        ("-t 5 --exclusive --gres=gpu:1", "exclusive-one-gpu"),
        ("-t 5 --mem=30G -c1", "memory-over-share"),
        ("-t 5 --array=1-3 -o out", "array-shares-output"),
    ],
)
def test_lint(options: str, code: str) -> None:
    """Warnings that can be silenced by their code."""
    assert codes(options) == []
    assert codes(options, lint=True) == [code]
    assert codes(options, lint=True, silenced=(code,)) == []


@pytest.mark.parametrize(
    ("options", "pods"), [("--gpus=4", 0), ("--gpus=8", 2), ("--gpus=13", 4), ("-N3", 3)]
)
def test_idle_pods_are_counted(options: str, pods: int) -> None:
    """Also if GPUs require several nodes."""
    script = f"#!/bin/sh\n#SBATCH {options}\n"
    found = compiler.compile_script(script.encode(), context=compiler.Context(site=SITE)).diagnostics
    assert [each.code for each in found] == ["idle-pods"] * bool(pods)
    assert all(f"the first of {pods} pods" in each.message for each in found)


def test_errors_cannot_be_silenced() -> None:
    assert codes("-p nope", silenced=("unknown-partition",)) == ["unknown-partition"]
