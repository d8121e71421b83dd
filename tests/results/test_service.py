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
from penstock.model import attempts, jobs
from penstock.results import collection, service, settings
from penstock.slurm import accounting
from penstock_lab import processes
from tests.results import stage as staging
from tests.results.stage import OTHER, USER, Stage

ASKING_SLURM = service._ended
"""The real one, which the fixture below takes the place of."""


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """What Slurm tells: everything, unless a test says otherwise."""
    knows = {"all": True}

    async def ended(
        slurm_conf: str, chosen: dict[str, service._Peek], now: float
    ) -> dict[str, jobs.JobRecord]:
        if not knows["all"]:
            return {}
        state = slurm_conf.removeprefix("from ")
        found = {}
        for name in chosen:
            content = await asyncio.to_thread(Path(state, "ended", name).read_bytes)
            found[name] = staging.record_of(msgspec.json.decode(content, type=attempts.Attempt))
        return found

    monkeypatch.setattr(service, "_ended", ended)
    return knows


def collector(stage: Stage, **changes: object) -> service.Collector:
    values = {"slurm_conf": f"from {stage.settings.state_dir}", **changes}
    return service.Collector(msgspec.structs.replace(stage.settings, **values))


def until(made: service.Collector, holds: Callable[[], bool], *, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        made.round()
        time.sleep(0.01)


def peek(uid: int, closed: float) -> service._Peek:
    return service._Peek(job_id=1, restart=0, uid=uid, launched=0.0, closed=closed)


def test_users_take_turns() -> None:
    """Somebody with a thousand jobs keeps nobody waiting."""
    many = {f"{n}-0.json": peek(1, n) for n in range(5)} | {
        "9-0.json": peek(2, 9.0),
        "8-0.json": peek(3, 8.0),
    }
    order = [name for name, _ in service.in_turn(many, {})]
    assert order[:3] == ["0-0.json", "8-0.json", "9-0.json"]
    assert order[3:] == ["1-0.json", "2-0.json", "3-0.json", "4-0.json"]


def test_users_take_turns_from_one_process_to_the_next(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody whose thousand jobs ended first does not get each process that becomes free."""
    monkeypatch.setattr(collection, "collect", lambda *arguments: time.sleep(60) or True)  # type: ignore[func-returns-value]  # sleeps
    for job_id in range(1, 6):
        stage.leave(stage.attempt(job_id, closed=1000.0 + job_id))
    stage.leave(stage.attempt(8, uid=OTHER.uid, closed=2000.0))
    made, started = collector(stage, workers=1), []
    for _ in range(3):
        made.round()
        ((pid, (name, _)),) = made.working.items()
        started.append(name)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        made._ended(pid, 0)
        (stage.settings.state / "ended" / name).unlink()
    made._end_children()
    assert started == ["1-0.json", "8-0.json", "2-0.json"]


def test_attempts_of_a_job_come_in_their_order() -> None:
    """And what is no record is left alone."""
    names = ["17-2.json", "17-10.json", "5-1.json", ".17-0.json.tmp", "x.json", "17.json", "17-1.txt"]
    assert service.first_attempts(names) == ["5-1.json", "17-2.json"]


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
    monkeypatch.setattr(collection, "collect", lambda *arguments: time.sleep(30) or True)  # type: ignore[func-returns-value]  # sleeps
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


def test_slurms_word_is_waited_for_when_all_were_away(stage: Stage, told: dict[str, bool]) -> None:
    """After a power cut Slurm starts no sooner than we do: when its jobs ended makes no difference."""
    told["all"] = False
    stage.leave(stage.attempt(closed=time.time() - 5000.0))
    made = collector(stage, patience=1000.0)
    made.round()
    assert (made.working, list(made.delayed)) == ({}, ["17-0.json"])
    told["all"] = True
    until(made, lambda: stage.names() == ["17"] and not made.working)
    assert stage.summary().state == "COMPLETED"


TOLD = jobs.JobRecord(job_id=1, shown_id="1", uid=7, state="REQUEUED", end="0:0", started=99.0, ended=100.0)
"""Of an attempt of uid 7 that was launched at 99."""
UNFINISHED = msgspec.structs.replace(TOLD, state="TIMEOUT")
COMPLETED = msgspec.structs.replace(TOLD, state="COMPLETED")
CASES = {
    "its own row": ([TOLD], None, 0.0, TOLD),
    "a row without an owner, yet": ([msgspec.structs.replace(TOLD, uid=0)], None, 0.0, None),
    "a row without an owner, a moment later": ([msgspec.structs.replace(TOLD, uid=0)], COMPLETED, 5.0, None),
    "a row without an owner, still": ([msgspec.structs.replace(TOLD, uid=0)], None, 10.0, TOLD),
    "an array's row without an owner or a name": (
        [msgspec.structs.replace(TOLD, uid=0)],
        msgspec.structs.replace(COMPLETED, shown_id="9_3"),
        10.0,
        msgspec.structs.replace(TOLD, shown_id="9_3"),
    ),
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
    "no row and an end, yet": ([msgspec.structs.replace(TOLD, job_id=2)], COMPLETED, 10.0, None),
    "no row and an end, still": ([msgspec.structs.replace(TOLD, job_id=2)], COMPLETED, 40.0, COMPLETED),
    "no row of anybody and an end, yet": ([], COMPLETED, 10.0, None),
    "no row of anybody and an end, still": ([], COMPLETED, 40.0, COMPLETED),
    "no row of anybody, but a later attempt": ([], TOLD, 10.0, TOLD),
    "no accounting": (None, COMPLETED, 10.0, COMPLETED),
    "no row and no end": ([msgspec.structs.replace(TOLD, job_id=2)], None, 40.0, None),
}


@pytest.mark.parametrize("case", CASES)
async def test_whose_row_is_taken_for_whose_attempt(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """slurmdbd may not know the owner of an attempt that ended at once: for a moment, or ever."""
    rows, told, seconds, expected = CASES[case]

    async def ended(slurm_conf: str, job_ids: object) -> tuple[jobs.JobRecord, ...]:
        if rows is None:
            raise errors.SlurmError("Slurm accounting storage is disabled")
        return tuple(rows)

    async def remembered(slurm_conf: str, job_id: int, **which: int) -> jobs.JobRecord | None:
        return told

    monkeypatch.setattr(accounting, "ended", ended)
    monkeypatch.setattr(accounting, "remembered", remembered)
    chosen = {"1-0.json": service._Peek(job_id=1, restart=0, uid=7, launched=99.0, closed=100.0)}
    found = await ASKING_SLURM("slurm.conf", chosen, 100.0 + seconds)
    assert found == ({"1-0.json": expected} if expected else {})


def test_failure_is_tried_again_later_and_later(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that is away is not asked every moment; others' records are not put off."""
    monkeypatch.setattr(collection, "collect", lambda *arguments: False)
    stage.leave(stage.attempt())
    made, now = collector(stage), [time.time()]
    made.now = lambda: now[0]
    seconds = []
    for _ in range(12):
        until(made, lambda: bool(made.delayed) and not made.working and made._is_delayed("17-0.json"))
        seconds.append(made.delayed["17-0.json"].seconds)
        now[0] += 1000
    assert seconds[:4] == [1.0, 2.0, 4.0, 8.0]
    assert seconds[-1] == service.LONGEST_DELAY


def test_record_that_is_never_understood_is_put_away(stage: Stage) -> None:
    """After the same time as results that cannot be had; until then a later release may understand it."""
    path = stage.leave(stage.attempt())
    path.write_bytes(path.read_bytes()[:40])
    made = collector(stage)
    until(made, lambda: path.name in made.delayed)
    assert path.exists()
    os.utime(path, (0, 0))
    made = collector(stage)
    until(made, lambda: not path.exists())
    assert (stage.settings.state / "given-up" / path.name).exists()


def test_record_that_lacks_something_is_put_away(stage: Stage) -> None:
    """What the loop needs to know may be there although the rest is not."""
    path = stage.leave(stage.attempt())
    path.write_bytes(path.read_bytes().replace(b'"token"', b'"nekot"'))
    assert not collection.collect(stage.settings, path, None)
    os.utime(path, (0, 0))
    assert collection.collect(stage.settings, path, None)
    assert (stage.settings.state / "given-up" / path.name).exists()


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
    with service._alone(stage.settings.state), pytest.raises(errors.UsageError, match="another collector"):
        service.Collector(stage.settings).run()


def test_children_of_a_killed_collector_do_not_keep_the_next_one_away(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go on with what they were at, which has a lock of its own; others' results do not wait for it."""
    at_work = stage.base / "at-work"
    monkeypatch.setattr(collection, "collect", lambda *arguments: at_work.touch() or time.sleep(60) or True)  # type: ignore[func-returns-value]  # sleeps
    stage.leave(stage.attempt())
    pid = run_collector(collector(stage, interval=0.01).settings)
    try:
        deadline = time.monotonic() + 60
        while not at_work.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.killpg(pid, 0)  # the child is there
        with service._alone(stage.settings.state):
            pass
    finally:
        os.killpg(pid, signal.SIGKILL)


def test_state_directory_without_penstockd_is_refused(stage: Stage) -> None:
    """In words that say who makes it."""
    (stage.settings.state / "ended").rmdir()
    with pytest.raises(errors.UsageError, match="has no folder `ended`"):
        service.Collector(stage.settings).run()


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
        assert len([name for name in made.telling.values() if name]) <= service.TELLERS
    finally:
        made._end_children()


def run_collector(chosen: settings.Settings) -> int:
    """A collector of its own, in a process group of its own."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            service.Collector(chosen).run()
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
    monkeypatch.setattr(collection, "collect", lambda *arguments: time.sleep(60) or True)  # type: ignore[func-returns-value]  # sleeps
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


async def test_slurmctld_that_is_away_takes_nothing_of_what_the_accounting_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is asked about one attempt only: the others' summaries need not do without their state."""

    async def ended(slurm_conf: str, job_ids: object) -> tuple[jobs.JobRecord, ...]:
        return (COMPLETED, msgspec.structs.replace(COMPLETED, job_id=3))

    asked = []

    async def remembered(slurm_conf: str, job_id: int, **which: int) -> jobs.JobRecord | None:
        asked.append(job_id)
        raise errors.SlurmUnavailable("slurmctld does not answer")

    monkeypatch.setattr(accounting, "ended", ended)
    monkeypatch.setattr(accounting, "remembered", remembered)
    chosen = {
        f"{job_id}-0.json": service._Peek(job_id=job_id, restart=0, uid=7, launched=99.0, closed=100.0)
        for job_id in (1, 2, 3, 4)
    }
    found = await ASKING_SLURM("slurm.conf", chosen, 140.0)
    assert list(found) == ["1-0.json", "3-0.json"]
    assert asked == [2]  # whoever does not answer is not waited for again at once


async def test_slurmctld_that_is_slow_is_not_asked_for_longer_than_the_loop_may_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of hundreds of attempts one by one, without accounting: systemd ended the collector, each time anew."""

    async def ended(slurm_conf: str, job_ids: object) -> tuple[jobs.JobRecord, ...]:
        raise errors.SlurmError("there is no accounting")

    async def remembered(slurm_conf: str, job_id: int, **which: int) -> jobs.JobRecord | None:
        return msgspec.structs.replace(COMPLETED, job_id=job_id)

    monkeypatch.setattr(accounting, "ended", ended)
    monkeypatch.setattr(accounting, "remembered", remembered)
    monkeypatch.setattr(service, "ASK_SECONDS", 0.0, raising=False)
    chosen = {
        f"{job_id}-0.json": service._Peek(job_id=job_id, restart=0, uid=7, launched=99.0, closed=100.0)
        for job_id in (1, 2, 3)
    }
    assert list(await ASKING_SLURM("slurm.conf", chosen, 140.0)) == ["1-0.json"]


def test_news_that_cannot_be_told_are_put_off_and_hold_up_no_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round began with the same four, and nothing after them was ever told."""
    heard = stage.base / "heard"

    def tell(chosen: settings.Settings, name: str) -> bool:
        with heard.open("a") as stream:
            stream.write(f"{name}\n")
        return name == "9-0.json"

    monkeypatch.setattr("penstock.results.notify.tell", tell)
    bad = [f"{number}-0.json" for number in range(1, service.TELLERS + 1)]
    for name in (*bad, "9-0.json"):
        (stage.settings.state / "telling" / name).touch()
    made, now = collector(stage, hook="/bin/true"), time.time()
    made.now = lambda: now
    made.sweep_at = now + 1
    for _ in range(2):
        made.round()
        for pid in list(made.telling):
            made._ended(pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    assert sorted(heard.read_text().split()) == [*bad, "9-0.json"]


def test_slurm_that_knows_nothing_is_not_asked_all_the_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is overdue waits for a free process, for hours perhaps: in each round sacct was run for it."""
    asked: list[str] = []

    async def ended(
        slurm_conf: str, chosen: dict[str, service._Peek], now: float
    ) -> dict[str, jobs.JobRecord]:
        asked.extend(chosen)
        return {}

    monkeypatch.setattr(service, "_ended", ended)
    monkeypatch.setattr(collection, "collect", lambda *arguments: time.sleep(60) or True)  # type: ignore[func-returns-value]  # sleeps
    for job_id in (17, 18):
        stage.leave(stage.attempt(job_id))
    made = collector(stage, workers=1, patience=-1000.0)
    made.now = lambda: made.began
    try:
        for _ in range(5):
            made.round()
        assert (len(made.working), sorted(asked)) == (1, ["17-0.json", "18-0.json"])
        made.now = lambda: made.began + 100
        made.round()
        assert sorted(asked) == ["17-0.json", "18-0.json", "18-0.json"]
    finally:
        made._end_children()


def test_sweep_that_hangs_is_not_begun_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a NAS that does not answer: one more each hour, and after four nobody was told anything."""
    monkeypatch.setattr("penstock.results.resultsroot.remove_empty", lambda folder: time.sleep(60) or True)  # type: ignore[func-returns-value]  # sleeps
    made, now = collector(stage), time.time()
    try:
        for hour in range(3):
            later = now + hour * service.SWEEP_SECONDS
            made.now = lambda later=later: later  # type: ignore[misc]  # as long as this round
            made.round()
        assert len(made.telling) == 1
    finally:
        made._end_children()
