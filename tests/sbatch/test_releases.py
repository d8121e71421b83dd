"""Where releases of Slurm differ, the compiler differs with them.

releases.json holds what sbatch 24.11.5 answered: directives of cases.json and scripts.json whose verdict is
not that of 22.05.8, and others that were asked because the documentation speaks of a change; slurmctld had
its say where sbatch had nothing to object to. tests/e2e/test_compiler_oracle.py asks every release again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.sbatch import options, rules
from penstock.sbatch.compiler import Context, compile_script

ANSWERS: list[list[object]] = json.loads(
    Path(__file__).with_name("releases.json").read_text(encoding="utf-8")
)
SEEN = "24.11"


@pytest.mark.parametrize(("header", "accepted"), ANSWERS, ids=lambda value: str(value)[:50])
def test_verdicts_of_24_11(header: str, accepted: bool) -> None:
    done = compile_script(f"#!/bin/bash\n{header}\nhostname\n".encode(), context=Context(release=SEEN))
    assert done.ok is accepted, done.diagnostics


def test_verdicts_differ_from_22_05() -> None:
    differing = [
        header
        for header, accepted in ANSWERS
        if compile_script(f"#!/bin/bash\n{header}\nhostname\n".encode()).ok is not accepted
    ]
    assert len(differing) > 20


@pytest.mark.parametrize("name", rules.every_rule())
def test_every_rule_has_bounds_and_evidence(name: str) -> None:
    rule = rules.every_rule()[name]
    assert rule.since in ("", *options.RELEASES)
    assert rule.until in ("", *options.RELEASES)
    assert rule.since or rule.until
    assert rule.evidence.startswith(("seen", "read"))
    assert rule.meaning


def test_bounds_are_inclusive() -> None:
    assert rules.holds("nodelist-within-nodes", "22.05")
    assert not rules.holds("nodelist-within-nodes", "23.02")
    assert not rules.holds("exclusive-or-oversubscribe", "24.05")
    assert rules.holds("exclusive-or-oversubscribe", "24.11")


def test_list_of_node_counts() -> None:
    """The minimum and maximum are kept."""
    done = compile_script(b"#!/bin/sh\n#SBATCH -N 4,1,2-8:2\n", context=Context(release="23.02"))
    assert done.spec is not None
    assert (done.spec.nodes.minimum, done.spec.nodes.maximum) == (1, 8)


@pytest.mark.parametrize(
    ("directive", "release", "cpus"),
    [
        ("--gpus-per-node=4 --cpus-per-gpu=8 -N2", "22.05", 2),
        ("--gpus-per-node=4 --cpus-per-gpu=8 -N2", "24.11", 64),
        ("--cpus-per-gpu=2 --gpus-per-task=3 -n2 -O", "24.11", 12),
        ("--gpus=4 --gpus-per-task=2 -c4", "24.11", 4),
        ("--gpus=4 --gpus-per-task=2 -c4", "26.05", 8),
        ("-N2 --hint=memory_bound --cores-per-socket=3", "24.11", 2),
        ("-N2 --hint=memory_bound --cores-per-socket=3", "26.05", 6),
    ],
)
def test_cpus_by_release(directive: str, release: str, cpus: int) -> None:
    """As slurmctld showed the job."""
    done = compile_script(f"#!/bin/sh\n#SBATCH {directive}\n".encode(), context=Context(release=release))
    assert done.spec is not None
    assert done.spec.cpus == cpus


def test_gpus_of_pbs_nodes_exclude_generic_resources_in_26_05() -> None:
    """On one line; earlier releases add them up."""
    script = b"#!/bin/sh\n#PBS -l nodes=2:ppn=4:gpus=2,accelerator=true\n"
    assert compile_script(script, context=Context(release="24.11")).ok
    assert not compile_script(script, context=Context(release="26.05")).ok
