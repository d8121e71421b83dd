"""The random test's own parts: a plan that can be had again, and a judge that sees what is wrong."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checking import snapshots
from penstock.kube import types
from tests.soak import judging, plans
from tests.unit import fakes

WELL = judging.Ended(
    job_id="7", state="COMPLETED", code="0:0", comment="", wanted=0, trace=("begin 0", "end 0")
)


@given(seed=st.integers(0, 10**6))
def test_a_seed_is_a_plan(seed: int) -> None:
    """The same steps with the same numbers, each time."""
    first, again = (list(itertools.islice(plans.steps(seed), 30)) for _ in range(2))
    assert first == again
    assert [step.number for step in first] == list(range(1, 31))


def test_every_kind_of_step_and_fault_comes_up() -> None:
    """Nothing in the tables is dead."""
    drawn = list(itertools.islice(plans.steps(1), 2000))
    assert {step.kind for step in drawn} == set(plans.WEIGHTS)
    assert {step.fault for step in drawn} == set(plans.FAULTS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"trace": ("begin 0", "begin 2", "end 2")}, []),
        ({"state": "FAILED", "code": "3:0", "wanted": 3}, []),
        ({"state": "CANCELLED", "trace": ()}, []),
        ({"state": "FAILED", "code": "1:0", "comment": "the job's pod was deleted from outside"}, []),
        ({"state": "FAILED", "code": "9:0"}, ["FAILED 9:0 without a reason"]),
        ({"trace": ("begin 0", "begin 0", "end 0")}, ["doubled: 'begin 0' 2 times"]),
        ({"state": ""}, ["lost: the accounting has no end of it"]),
        ({"trace": ("begin 0",)}, ["ended well without having run"]),
        ({"wanted": 7}, ["completed, though its script ends with 7"]),
        ({"state": "FAILED", "code": "1:0"}, ["FAILED 1:0 without a reason"]),
    ],
)
def test_the_judge(changes: dict[str, Any], words: list[str]) -> None:
    """Lost, doubled, wrong or unexplained ends are told apart from true ones."""
    assert judging.faults_of(dataclasses.replace(WELL, **changes)) == words


@pytest.mark.parametrize(("phase", "room"), [("Running", False), ("Succeeded", True)])
def test_only_pods_that_live_book_a_node(phase: str, room: bool) -> None:
    """Somebody's pod beside one of ours that has ended books nothing twice; beside a living one it does."""
    ours = fakes.pod("ours", gpus=1, job=fakes.identity(), status=types.PodStatus(phase=phase))
    seen = snapshots.Snapshot(
        pods=(ours, fakes.pod("notebook", gpus=4)), nodes=(fakes.node("n1"),), secrets=(), jobs={}
    )
    assert judging.is_room_for_all(seen, "node n1") == room
