"""The collector's loop: order, turns, limits, and what becomes of it when it is killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from penstock import errors
from penstock.lab import processes
from penstock.model import attempts
from penstock.results import collecting, running, settings
from penstock.slurm import accounting
from tests.results import stage as staging
from tests.results.stage import OTHER, USER, Stage

ASKING_SLURM = running._ended
"""The real one, which the fixture below takes the place of."""


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """What Slurm tells: everything, unless a test says otherwise."""
    knows = {"all": True}

    async def ended(
        slurm_conf: str, chosen: dict[str, running._Peek], now: float
    ) -> dict[str, accounting.EndedAttempt]:
        if not knows["all"]:
            return {}
        state = slurm_conf.removeprefix("from ")
        found = {}
        for name in chosen:
            content = await asyncio.to_thread(Path(state, "ended", name).read_bytes)
            found[name] = staging.record_of(msgspec.json.decode(content, type=attempts.Attempt))
        return found

    monkeypatch.setattr(running, "_ended", ended)
    return knows


def collector(stage: Stage, **changes: object) -> running.Collector:
    values = {"slurm_conf": f"from {stage.settings.state_dir}", **changes}
    return running.Collector(msgspec.structs.replace(stage.settings, **values))


def until(made: running.Collector, holds: Callable[[], bool], *, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        made.round()
        time.sleep(0.01)


def peek(uid: int, closed: float) -> running._Peek:
    return running._Peek(job_id=1, restart=0, uid=uid, launched=0.0, closed=closed)


def test_users_take_turns() -> None:
    """Somebody with a thousand jobs keeps nobody waiting."""
    many = {f"{n}-0.json": peek(1, n) for n in range(5)} | {
        "9-0.json": peek(2, 9.0),
        "8-0.json": peek(3, 8.0),
    }
    order = [name for name, _ in running.in_turn(many)]
    assert order[:3] == ["0-0.json", "8-0.json", "9-0.json"]
    assert order[3:] == ["1-0.json", "2-0.json", "3-0.json", "4-0.json"]


def test_attempts_of_a_job_come_in_their_order() -> None:
    """And what is no record is left alone."""
    names = ["17-2.json", "17-10.json", "5-1.json", ".17-0.json.tmp", "x.json", "17.json", "17-1.txt"]
    assert running.first_attempts(names) == ["5-1.json", "17-2.json"]


def test_everything_is_collected(stage: Stage) -> None:
    """Several jobs, one with three attempts, in any order of records."""
    for job_id in (18, 17):
        stage.leave(stage.attempt(job_id))
    for restart in (2, 0, 1):
        stage.leave(stage.attempt(19, restart=restart))
    made = collector(stage)
    until(made, lambda: not list((stage.settings.state / "ended").iterdir()) and not made.working)
    assert stage.names() == ["17", "18", "19"]
    assert (stage.results / "19" / "attempt-1").is_dir()
    assert all(staging.sha256sum(stage.results / name) == "" for name in stage.names())


def test_limits_of_processes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many in all, so many for one user."""
    monkeypatch.setattr(collecting, "collect", lambda *arguments: time.sleep(30) or True)  # type: ignore[func-returns-value]  # sleeps
    for job_id in range(4):
        stage.leave(stage.attempt(job_id))
    for job_id in range(4, 8):
        stage.leave(stage.attempt(job_id, uid=OTHER.uid))
    made = collector(stage, workers=3, workers_per_user=2)
    for _ in range(3):
        made.round()
    try:
        owners = [uid for _, uid in made.working.values()]
        assert sorted(owners) in (sorted([USER.uid] * 2 + [OTHER.uid]), sorted([USER.uid] + [OTHER.uid] * 2))
    finally:
        made._end_children()


def test_slurms_word_is_waited_for(stage: Stage, told: dict[str, bool]) -> None:
    """With patience; then the summary does without."""
    told["all"] = False
    stage.leave(stage.attempt())
    now = time.time()
    made = collector(stage, patience=100.0)
    made.now = lambda: now
    made.round()
    assert (made.working, list(made.delayed)) == ({}, ["17-0.json"])
    made.now = lambda: now + 200
    until(made, lambda: stage.names() == ["17"] and not made.working)
    assert stage.summary().state is None


TOLD = accounting.EndedAttempt(
    job_id=1, shown_id="1", uid=7, state="REQUEUED", exit_code="0:0", started=99.0, ended=100.0
)
"""Of an attempt of uid 7 that was launched at 99."""
UNFINISHED = msgspec.structs.replace(TOLD, state="TIMEOUT")
CASES = {
    "its own row": ([TOLD], None, 0.0, TOLD),
    "a row without an owner, yet": ([msgspec.structs.replace(TOLD, uid=0)], None, 0.0, None),
    "a row without an owner, still": ([msgspec.structs.replace(TOLD, uid=0)], None, 10.0, TOLD),
    "an end without its exit code, yet": ([UNFINISHED], None, 0.0, None),
    "an end without an exit code, still": ([UNFINISHED], None, 10.0, UNFINISHED),
    "somebody else's row": ([msgspec.structs.replace(TOLD, uid=8)], None, 10.0, None),
    "root's job of that number before": (
        [msgspec.structs.replace(TOLD, uid=0, started=1.0, ended=2.0)],
        None,
        10.0,
        None,
    ),
    "no row, but a later attempt": ([msgspec.structs.replace(TOLD, job_id=2)], TOLD, 10.0, TOLD),
    "no row and an end": (
        [msgspec.structs.replace(TOLD, job_id=2)],
        msgspec.structs.replace(TOLD, state="COMPLETED"),
        10.0,
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_whose_row_is_taken_for_whose_attempt(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """slurmdbd may not know the owner of an attempt that ended at once: for a moment, or ever."""
    rows, told, seconds, expected = CASES[case]

    async def ended(slurm_conf: str, job_ids: object) -> tuple[accounting.EndedAttempt, ...]:
        return tuple(rows)

    async def remembered(slurm_conf: str, job_id: int, **which: int) -> accounting.EndedAttempt | None:
        return told

    monkeypatch.setattr(accounting, "ended", ended)
    monkeypatch.setattr(accounting, "remembered", remembered)
    chosen = {"1-0.json": running._Peek(job_id=1, restart=0, uid=7, launched=99.0, closed=100.0)}
    found = await ASKING_SLURM("slurm.conf", chosen, 100.0 + seconds)
    assert found == ({"1-0.json": expected} if expected else {})


def test_failure_is_tried_again_later_and_later(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that is away is not asked every moment; others' records are not put off."""
    monkeypatch.setattr(collecting, "collect", lambda *arguments: False)
    stage.leave(stage.attempt())
    made, now = collector(stage), [time.time()]
    made.now = lambda: now[0]
    seconds = []
    for _ in range(12):
        until(made, lambda: bool(made.delayed) and not made.working and made._is_delayed("17-0.json"))
        seconds.append(made.delayed["17-0.json"].seconds)
        now[0] += 1000
    assert seconds[:4] == [1.0, 2.0, 4.0, 8.0]
    assert seconds[-1] == running.LONGEST_DELAY


def test_broken_record_stops_nobody(stage: Stage) -> None:
    """It is put off and said; the others go on."""
    (stage.settings.state / "ended" / "1-0.json").write_text("{")
    stage.leave(stage.attempt())
    made = collector(stage)
    until(made, lambda: stage.names() == ["17"] and not made.working)
    assert "1-0.json" in made.delayed


def test_several_that_come_first_together_agree(stage: Stage) -> None:
    """On the mark by which the results folder is known again."""
    for job_id in range(17, 29):
        stage.leave(stage.attempt(job_id))
    made = collector(stage, workers=12, workers_per_user=12)
    made.round()
    assert len(made.working) == 12
    until(made, lambda: not made.working)
    assert (len(stage.names()), made.delayed) == (12, {})


def test_folders_that_their_owners_emptied_disappear(stage: Stage) -> None:
    """And nothing else does, neither folders with something in them nor what is no job's."""
    for name in ("17", "20_3", "18", "home", ".outputs"):
        (stage.results / name).mkdir()
    (stage.results / "18" / "kept").write_text("x")
    made = collector(stage)
    until(made, lambda: stage.names() == ["18", "home"] and not made.telling)
    assert (stage.results / "18" / "kept").read_text() == "x"


def test_second_collector_is_refused(stage: Stage) -> None:
    """One for one state directory."""
    with running._alone(stage.settings.state), pytest.raises(errors.UsageError, match="another collector"):
        running.Collector(stage.settings).run()


def test_state_directory_without_penstockd_is_refused(stage: Stage) -> None:
    """In words that say who makes it."""
    (stage.settings.state / "ended").rmdir()
    with pytest.raises(errors.UsageError, match="has no folder `ended`"):
        running.Collector(stage.settings).run()


def test_hooks_never_hold_up_results(stage: Stage) -> None:
    """One that hangs for ever, for every job."""
    hook = stage.base / "hook"
    hook.write_text("#!/bin/sh\nsleep 1000\n")
    hook.chmod(0o755)
    for job_id in range(17, 27):
        stage.leave(stage.attempt(job_id))
    made = collector(stage, hook=str(hook), hook_seconds=500.0)
    try:
        until(made, lambda: len(stage.names()) == 10)
        assert len([name for name in made.telling.values() if name]) <= running.TELLERS
    finally:
        made._end_children()


def run_collector(chosen: settings.Settings) -> int:
    """A collector of its own, in a process group of its own."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            running.Collector(chosen).run()
        finally:
            os._exit(0)
    return pid


def test_killed_at_random_it_goes_on(stage: Stage) -> None:
    """SIGKILL to the collector and all its children, again and again: nothing is lost, nothing twice."""
    rng = random.Random(7)  # noqa: S311  # no secret
    for job_id in range(100, 130):
        for restart in (0, 1):
            attempt = stage.attempt(job_id, restart=restart, outputs=("*.csv",))
            stage.output_folder(attempt, model=f"{job_id} {restart}")
            stage.leave(attempt)
    stage.file("a.csv")
    chosen = collector(stage, interval=0.01).settings
    ended = stage.settings.state / "ended"
    deadline = time.monotonic() + 300
    longest = 0.3
    while list(ended.iterdir()):
        assert time.monotonic() < deadline
        pid = run_collector(chosen)
        time.sleep(rng.uniform(0.02, longest))
        longest += 0.01  # a slow machine gets something done before the kill, too
        os.kill(pid, signal.SIGKILL) if rng.random() < 0.5 else os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    until(collector(stage), lambda: not any(name.startswith(".") for name in stage.names()), seconds=120)
    assert stage.names() == [str(job_id) for job_id in range(100, 130)]
    for job_id in range(100, 130):
        folder = stage.results / str(job_id)
        assert staging.sha256sum(folder) == ""
        assert (folder / "outputs" / "model").read_text() == f"{job_id} 1"
        assert (folder / "attempt-0" / "outputs" / "model").read_text() == f"{job_id} 0"


def test_told_to_stop_it_takes_its_children_along(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM, while a child is at work."""
    monkeypatch.setattr(collecting, "collect", lambda *arguments: time.sleep(60) or True)  # type: ignore[func-returns-value]  # sleeps
    stage.leave(stage.attempt())
    pid = run_collector(collector(stage, interval=0.01).settings)
    deadline = time.monotonic() + 60
    while not processes.descendants([pid], processes.snapshot()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)
