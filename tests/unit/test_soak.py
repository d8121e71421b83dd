"""The random test's own parts: a plan that can be had again, and a judge that sees what is wrong."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.audit import snapshots
from penstock.kube import types
from tests.soak import accounts, judging, plans
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


SACCT = """\
506|506|soak-3|FAILED|3:0|2026-11-18T03:16:57|2026-11-18T03:17:15|
506|506|soak-3|PENDING|0:0|2026-11-18T03:17:10|Unknown|
507|507|soak-0|REQUEUED|0:0|2026-11-18T03:16:57|2026-11-18T03:17:09|
507|507|soak-0|COMPLETED|0:0|2026-11-18T03:17:10|2026-11-18T03:17:40|a | b
"""
UNSAVED = "[2026-11-18T03:17:10.104] error: Semaphores still set after 30 seconds, can not save state\n"


@pytest.mark.parametrize(
    ("log", "states", "left_open"),
    [
        (UNSAVED, {"506": "FAILED", "507": "COMPLETED"}, ["506"]),
        ("", {"506": "PENDING", "507": "COMPLETED"}, []),
        (UNSAVED.replace("03:17:10", "03:17:14"), {"506": "PENDING", "507": "COMPLETED"}, []),
    ],
)
def test_a_record_left_open_by_an_unsaved_stop_does_not_count(
    log: str, states: dict[str, str], left_open: list[str]
) -> None:
    """Any other that is pending is the job's latest, and the job is lost."""
    records, others = accounts.that_count(accounts.parse(SACCT), accounts.unsaved_stops(log))
    assert {record.job_id: record.state for record in records} == states
    assert [record.job_id for record in others] == left_open
    assert [record.comment for record in records] == ["", "a | b"]


@pytest.mark.parametrize(("phase", "room"), [("Running", False), ("Succeeded", True)])
def test_only_pods_that_live_book_a_node(phase: str, room: bool) -> None:
    """Somebody's pod beside one of ours that has ended books nothing twice; beside a living one it does."""
    ours = fakes.pod("ours", gpus=1, job=fakes.identity(), status=types.PodStatus(phase=phase))
    seen = snapshots.Snapshot(
        pods=(ours, fakes.pod("notebook", gpus=4)), nodes=(fakes.node("n1"),), secrets=(), jobs={}
    )
    assert judging.is_room_for_all(seen, "node n1") == room
