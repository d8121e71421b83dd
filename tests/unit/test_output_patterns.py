"""Patterns of the files that are collected as a job's outputs."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.model import jobspec, launches
from tests.unit import fakes
from tests.unit.test_attempts import World, world

__all__ = ["world"]  # pytest finds the fixture by its name


def task(*patterns: str, number: str = "3", workdir: bytes = b"/nas/home") -> launches.LaunchRequest:
    """A task of an array with these outputs, or a job without an array."""
    array = (b"SLURM_ARRAY_JOB_ID=20", b"SLURM_ARRAY_TASK_ID=" + number.encode()) if number else ()
    return dataclasses.replace(
        fakes.REQUEST,
        environment=(b"SLURM_JOB_ID=23", *array),
        workdir=workdir,
        pod=jobspec.PodSpec(outputs=patterns),
    )


@pytest.mark.parametrize(
    ("pattern", "number", "expected"),
    [
        ("part-%a.csv", "3", "part-3.csv"),
        ("%A/%3a/%j-*", "3", "20/003/23-*"),
        ("100%%a", "3", "100%a"),
        ("%x-%n", "3", "%x-%n"),
        ("%A-%j", "", "23-23"),
        ("%a", "", "4294967294"),
    ],
)
def test_output_patterns_are_filled_in_like_slurms(pattern: str, number: str, expected: str) -> None:
    """For job, array and task."""
    assert task(pattern, number=number).outputs == (expected,)


async def test_a_task_collects_no_files_of_its_siblings(world: World) -> None:
    """Tasks share a work directory, unless it is the container's own."""
    patterns = ("*.csv", "part-%a.*", "%j/**", "%A-all", "%%a")
    world.bridge.context.store.reserve(fakes.allocation(17))
    await world.bridge.attempts.begin(fakes.allocation(17), task(*patterns))
    found = world.bridge.context.store.job(17).attempt
    assert found is not None
    assert (found.outputs, found.outputs_left) == (("part-3.*", "23/**"), ("*.csv", "%A-all", "%%a"))
    await world.bridge.attempts.begin(fakes.allocation(18), task(*patterns, workdir=b"/app"))
    inside = world.bridge.context.store.job(18).attempt
    assert inside is not None
    assert (inside.outputs_left, inside.outputs[0]) == ((), "*.csv")
    await world.bridge.attempts.begin(fakes.allocation(19), task(*patterns, number=""))
    alone = world.bridge.context.store.job(19).attempt
    assert alone is not None
    assert (alone.outputs_left, alone.outputs[0]) == ((), "*.csv")
