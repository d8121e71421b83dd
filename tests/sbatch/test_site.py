"""A job held against a site, and advice."""

from __future__ import annotations

import pytest

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
    registries=("hub.local:5000",),
    forbidden_directives=("MOUNT",),
    max_array_size=101,
)


def codes(options: str, *lines: str, lint: bool = False, silenced: tuple[str, ...] = ()) -> list[str]:
    """What is found in a script with these options and #K8S_ lines."""
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
        ("-C nope", "unknown-feature"),
        ("--array=0-101", "array-too-large"),
        ("--array=101", "array-too-large"),
    ],
)
def test_what_can_never_run_here(options: str, code: str) -> None:
    """Each impossibility is one error of its own."""
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
        "-p cpu -c 64",
    ],
)
def test_what_may_run_here(options: str) -> None:
    """A job that fits is not complained about, however long it may wait."""
    assert codes(options) == []


def test_images_and_directives_of_the_site() -> None:
    """Registries and directives the site does not allow are errors."""
    assert codes("-N1", "IMAGE=hub.local:5000/a") == []
    assert codes("-N1", "IMAGE=docker.io/a") == ["forbidden-registry"]
    assert codes("-N1", "IMAGE=a") == ["forbidden-registry"]
    assert codes("-N1", "MOUNT=/a") == ["forbidden-directive"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("-N1", "no-time-limit"),
        ("-t 5 --exclusive --gres=gpu:1", "exclusive-one-gpu"),
        ("-t 5 --mem=30G -c1", "memory-over-share"),
        ("-t 5 --array=1-3 -o out", "array-shares-output"),
    ],
)
def test_advice(options: str, code: str) -> None:
    """What is allowed but unwise is a warning, and silenced by its code."""
    assert codes(options) == []
    assert codes(options, lint=True) == [code]
    assert codes(options, lint=True, silenced=(code,)) == []


def test_errors_cannot_be_silenced() -> None:
    """Silence is for warnings."""
    assert codes("-p nope", silenced=("unknown-partition",)) == ["unknown-partition"]
