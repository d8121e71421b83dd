"""The collector's loop: order, fairness, limits, retries, and kills."""

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
from penstock.results import collection, endings, recordqueue, service, settings
from penstock_lab import processes
from tests.results import stage as staging
from tests.results.stage import OTHER, USER, Stage


@pytest.fixture(autouse=True)
def slurm_knows(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Slurm knows everything, unless a test says otherwise."""
    knows = {"all": True}

    async def ended(
        slurm_conf: str, chosen: dict[str, recordqueue.Head], now: float
    ) -> dict[str, jobs.JobRecord]:
        if not knows["all"]:
            return {}
        state = slurm_conf.removeprefix("from ")
        found = {}
        for name in chosen:
            content = await asyncio.to_thread(Path(state, "ended", name).read_bytes)
            found[name] = staging.record_of(msgspec.json.decode(content, type=attempts.Attempt))
        return found

    monkeypatch.setattr(endings, "ended", ended)
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


def head(uid: int, closed: float) -> recordqueue.Head:
    return recordqueue.Head(job_id=1, restart=0, uid=uid, launched=0.0, closed=closed)


def test_users_take_turns() -> None:
    """A user with a thousand jobs does not delay others."""
    many = {f"{n}-0.json": head(1, n) for n in range(5)} | {
        "9-0.json": head(2, 9.0),
        "8-0.json": head(3, 8.0),
    }
    order = [name for name, _ in recordqueue.in_turn(many, {})]
    assert order[:3] == ["0-0.json", "8-0.json", "9-0.json"]
    assert order[3:] == ["1-0.json", "2-0.json", "3-0.json", "4-0.json"]


def test_users_take_turns_across_rounds(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose thousand jobs ended first does not get every free process."""
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


def test_attempts_of_a_job_are_in_order() -> None:
    """Other files are ignored."""
    names = ["17-2.json", "17-10.json", "5-1.json", ".17-0.json.tmp", "x.json", "17.json", "17-1.txt"]
    assert recordqueue.first_attempts(names) == ["5-1.json", "17-2.json"]


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


def test_process_limits(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """In total and per user."""
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


def test_slurm_record_is_awaited(stage: Stage, slurm_knows: dict[str, bool]) -> None:
    """For `patience` seconds; then the summary lacks it."""
    slurm_knows["all"] = False
    stage.leave(stage.attempt())
    now = time.time()
    made = collector(stage, patience=100.0)
    made.now = lambda: now
    made.round()
    assert (made.working, list(made.delayed)) == ({}, ["17-0.json"])
    made.now = lambda: now + 200
    until(made, lambda: stage.names() == ["17"] and not made.working)
    assert stage.summary().state is None


def test_slurm_record_is_awaited_after_power_cut(stage: Stage, slurm_knows: dict[str, bool]) -> None:
    """Slurm starts no sooner than we do, however long ago the job ended."""
    slurm_knows["all"] = False
    stage.leave(stage.attempt(closed=time.time() - 5000.0))
    made = collector(stage, patience=1000.0)
    made.round()
    assert (made.working, list(made.delayed)) == ({}, ["17-0.json"])
    slurm_knows["all"] = True
    until(made, lambda: stage.names() == ["17"] and not made.working)
    assert stage.summary().state == "COMPLETED"


def test_failure_is_retried_with_backoff(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that is unavailable is not tried all the time."""
    monkeypatch.setattr(collection, "collect", lambda *arguments: False)
    stage.leave(stage.attempt())
    made, now = collector(stage), [time.time()]
    made.now = lambda: now[0]
    seconds = []
    for _ in range(12):
        until(
            made,
            lambda: bool(made.delayed) and not made.working and made._is_later(made.delayed, "17-0.json"),
        )
        seconds.append(made.delayed["17-0.json"].seconds)
        now[0] += 1000
    assert seconds[:4] == [1.0, 2.0, 4.0, 8.0]
    assert seconds[-1] == service.LONGEST_DELAY


def test_invalid_record_is_given_up(stage: Stage) -> None:
    """After give_up_seconds; until then a later release may read it."""
    path = stage.leave(stage.attempt())
    path.write_bytes(path.read_bytes()[:40])
    made = collector(stage)
    until(made, lambda: path.name in made.delayed)
    assert path.exists()
    os.utime(path, (0, 0))
    made = collector(stage)
    until(made, lambda: not path.exists())
    assert (stage.settings.state / "given-up" / path.name).exists()


def test_incomplete_record_is_given_up(stage: Stage) -> None:
    """It may have the keys of Head and lack others."""
    path = stage.leave(stage.attempt())
    path.write_bytes(path.read_bytes().replace(b'"token"', b'"nekot"'))
    assert not collection.collect(stage.settings, path, None)
    os.utime(path, (0, 0))
    assert collection.collect(stage.settings, path, None)
    assert (stage.settings.state / "given-up" / path.name).exists()


def test_invalid_record_does_not_delay_others(stage: Stage) -> None:
    """It is delayed and logged."""
    (stage.settings.state / "ended" / "1-0.json").write_text("{")
    stage.leave(stage.attempt())
    made = collector(stage)
    until(made, lambda: stage.names() == ["17"] and not made.working)
    assert "1-0.json" in made.delayed


def test_concurrent_first_processes_agree_on_mark(stage: Stage) -> None:
    """By which the results folder is recognised."""
    for job_id in range(17, 29):
        stage.leave(stage.attempt(job_id))
    made = collector(stage, workers=12, workers_per_user=12)
    made.round()
    assert len(made.working) == 12
    until(made, lambda: not made.working)
    assert (len(stage.names()), made.delayed) == (12, {})


def test_emptied_folders_are_removed(stage: Stage) -> None:
    """Neither folders with content nor folders of no job."""
    for name in ("17", "20_3", "18", "home", ".outputs"):
        (stage.results / name).mkdir()
    (stage.results / "18" / "kept").write_text("x")
    made = collector(stage)
    until(made, lambda: stage.names() == ["18", "home"] and not made.notifying)
    assert (stage.results / "18" / "kept").read_text() == "x"


def test_second_collector_is_refused(stage: Stage) -> None:
    """For the same state directory."""
    with service._locked(stage.settings.state), pytest.raises(errors.UsageError, match="another collector"):
        service.Collector(stage.settings).run()


def test_children_of_killed_collector_do_not_block_next_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold locks of their records, not the collector's lock."""
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
        with service._locked(stage.settings.state):
            pass
    finally:
        os.killpg(pid, signal.SIGKILL)


def test_state_directory_without_penstockd_is_refused(stage: Stage) -> None:
    """The message says that penstockd creates it."""
    (stage.settings.state / "ended").rmdir()
    with pytest.raises(errors.UsageError, match="has no folder `ended`"):
        service.Collector(stage.settings).run()


def test_hanging_hooks_do_not_delay_results(stage: Stage) -> None:
    """One hangs for every job."""
    hook = stage.base / "hook"
    hook.write_text("#!/bin/sh\nsleep 1000\n")
    hook.chmod(0o755)
    for job_id in range(17, 27):
        stage.leave(stage.attempt(job_id))
    made = collector(stage, hook=str(hook), hook_seconds=500.0)
    try:
        until(made, lambda: len(stage.names()) == 10)
        assert len([name for name in made.notifying.values() if name]) <= service.NOTIFIERS
    finally:
        made._end_children()


def run_collector(chosen: settings.Settings) -> int:
    """A collector in its own process group."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            service.Collector(chosen).run()
        finally:
            os._exit(0)
    return pid


def test_random_kills_lose_nothing(stage: Stage) -> None:
    """SIGKILL to the collector, or to it and all its children, again and again."""
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


def test_sigterm_ends_children(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a child is working."""
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


def test_failing_notices_do_not_delay_others(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round once began with the same four."""
    heard = stage.base / "heard"

    def tell(chosen: settings.Settings, name: str) -> bool:
        with heard.open("a") as stream:
            stream.write(f"{name}\n")
        return name == "9-0.json"

    monkeypatch.setattr("penstock.results.notify.send", tell)
    bad = [f"{number}-0.json" for number in range(1, service.NOTIFIERS + 1)]
    for name in (*bad, "9-0.json"):
        (stage.settings.state / "telling" / name).touch()
    made, now = collector(stage, hook="/bin/true"), time.time()
    made.now = lambda: now
    made.sweep_at = now + 1
    for _ in range(2):
        made.round()
        for pid in list(made.notifying):
            made._ended(pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    assert sorted(heard.read_text().split()) == [*bad, "9-0.json"]


def test_unknown_overdue_records_are_asked_with_backoff(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overdue record may wait hours for a free process; sacct once ran in every round."""
    asked: list[str] = []

    async def ended(
        slurm_conf: str, chosen: dict[str, recordqueue.Head], now: float
    ) -> dict[str, jobs.JobRecord]:
        asked.extend(chosen)
        return {}

    monkeypatch.setattr(endings, "ended", ended)
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


def test_hanging_sweep_is_not_repeated(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a NAS that does not answer; four of them once blocked all notices."""
    monkeypatch.setattr("penstock.results.resultsroot.remove_empty", lambda folder: time.sleep(60) or True)  # type: ignore[func-returns-value]  # sleeps
    made, now = collector(stage), time.time()
    try:
        for hour in range(3):
            later = now + hour * service.SWEEP_SECONDS
            made.now = lambda later=later: later  # type: ignore[misc]  # as long as this round
            made.round()
        assert len(made.notifying) == 1
    finally:
        made._end_children()
