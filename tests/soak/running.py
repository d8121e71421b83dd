"""The random test: runs steps until the time is over, checks the invariants, then judges the jobs."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock import clock, wellknown
from penstock.audit import checkruns as checking
from penstock.audit import collect, confirmed, reports, snapshots
from penstock.kube import client, kubeconfig
from penstock_lab import labcheck, testing
from tests.soak import accounts, judging, plans
from tests.soak import world as worlds

LOOK_EVERY = 1.0
PATIENCE = {"I1": 0.0, "I2": 90.0, "I5": 0.0}
END_SECONDS = 240.0
ACCOUNTING_SECONDS = 60.0
SETTLE_SECONDS = 60.0


@dataclasses.dataclass
class Report:
    """The final report."""

    seed: int
    steps: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    ends: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    looks: int = 0
    blind: int = 0
    """Checks in which Slurm, Kubernetes or penstockd did not answer."""
    contended: int = 0
    """Checks in which a foreign pod used room reserved for a job that did not use it."""
    left_open: int = 0
    """Records that a slurmctld which could not save its state has left open; see accounts.py."""
    violations: set[str] = dataclasses.field(default_factory=set)
    faults: list[str] = dataclasses.field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not self.violations and not self.faults and self.looks > 0


class EventLog:
    """Logs every step and finding as a JSON line, with seconds since the start."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._began = time.monotonic()

    def note(self, event: str, **fields: Any) -> None:
        line = {"at": round(time.monotonic() - self._began, 2), "event": event, **fields}
        self._file.write(json.dumps(line, default=str) + "\n")

    def close(self) -> None:
        self._file.close()


def run(lab: testing.RunningLab, *, seed: int, seconds: float, events: Path, once: bool = False) -> Report:
    """Run the test on this lab; `once`: with jobs that may not run twice, and that only scancel ends."""
    report = Report(seed)
    log = EventLog(events)
    try:
        world = worlds.World(lab, log.note, requeue="--no-requeue" if once else "--requeue")
        with watched(lab, report, log):
            steps = plans.steps(seed, plans.GENTLE if once else plans.WEIGHTS)
            world.switch.seed(seed)
            _storm(world, report, log, steps, seconds=seconds)
            world.calm()
            _wait_for_ends(world, log)
            jobs, left_open = _accounted(world)
        report.left_open = len(left_open)
        _judge(world, jobs, report, log, judging.faults_of_one_run if once else judging.faults_of)
        _end_clean(lab, report, log)
    finally:
        log.note("report", steps=report.steps, ends=report.ends, looks=report.looks, faults=report.faults)
        log.close()
    return report


def _storm(
    world: worlds.World, report: Report, log: EventLog, steps: Iterator[plans.Step], *, seconds: float
) -> None:
    end = time.monotonic() + seconds
    for step in steps:
        if time.monotonic() > end:
            return
        log.note("step", number=step.number, kind=step.kind)
        report.steps[step.kind] += 1
        world.do(step)
        wake = time.monotonic() + step.pause
        while (now := time.monotonic()) < wake:
            world.tidy()
            time.sleep(min(0.1, wake - now))
        world.tidy()


def _wait_for_ends(world: worlds.World, log: EventLog) -> None:
    """Wait until all jobs have ended, or until the timeout."""
    deadline = time.monotonic() + END_SECONDS
    while waiting := world.lab.run(("squeue", "-h", "-r", "-o", "%i %T %r")).stdout.split("\n")[:-1]:
        if time.monotonic() > deadline:
            log.note("not ended", jobs=waiting)
            break
        world.hurry()
        time.sleep(1)


def _records(world: worlds.World) -> tuple[list[accounts.Record], list[accounts.Record]]:
    """The accounting records of all jobs and array tasks, and those that will never appear.

    sacct omits jobs that were cancelled before their start, unless it is asked for them by number.
    """
    listed = _sacct(world, "--starttime=now-1days")
    known = {record.shown_id.partition("_")[0] for record in listed}
    missing = [job_id for job_id in world.jobs if job_id not in known]
    if missing:
        listed += _sacct(world, f"--jobs={','.join(missing)}")
    log = (world.lab.place.slurm_log / "slurmctld.log").read_text(errors="replace")
    own = (record for record in listed if record.name.startswith(world.name))
    return accounts.that_count(own, accounts.unsaved_stops(log))


def _sacct(world: worlds.World, which: str) -> list[accounts.Record]:
    argv = ("sacct", "-nPXD", which, f"--format={accounts.FIELDS}")
    return accounts.parse(world.lab.run(argv).stdout)


def _accounted(world: worlds.World) -> tuple[list[judging.Ended], list[accounts.Record]]:
    """The accounting records; ends appear there shortly after the queue is empty."""
    for last in testing.looks(ACCOUNTING_SECONDS):
        records, left_open = _records(world)
        jobs = [_ended_job(world, record) for record in records]
        known = {record.shown_id.partition("_")[0] for record in records}
        jobs += [_unrecorded(job_id) for job_id in world.jobs if job_id not in known]
        if last or all(job.state for job in jobs):
            return jobs, left_open
    raise AssertionError("unreachable: looks() ends with True")


def _ended_job(world: worlds.World, record: accounts.Record) -> judging.Ended:
    """All jobs known to Slurm, including those whose sbatch got no reply."""
    trace = world.folder / f"trace.{record.job_id}"
    return judging.Ended(
        job_id=record.job_id,
        state=record.state.partition(" ")[0] if record.has_ended else "",
        code=record.code,
        comment=record.comment,
        wanted=int(record.name.removeprefix(world.name)),
        trace=tuple(trace.read_text().splitlines()) if trace.exists() else (),
        cancelled=record.shown_id.partition("_")[0] in world.cancelled,
    )


def _unrecorded(job_id: str) -> judging.Ended:
    """A job that sbatch has reported and the accounting lacks."""
    return judging.Ended(job_id=job_id, state="", code="", comment="", wanted=0, trace=())


def _judge(
    world: worlds.World,
    jobs: list[judging.Ended],
    report: Report,
    log: EventLog,
    faults_of: Callable[[judging.Ended], list[str]],
) -> None:
    for job in jobs:
        report.ends[job.state or "unknown"] += 1
        for fault in faults_of(job):
            report.faults.append(f"job {job.job_id} {fault}")
            log.note("fault", job=dataclasses.asdict(job), fault=fault, **_evidence(world, job.job_id))


def _evidence(world: worlds.World, job_id: str) -> dict[str, str]:
    """All of Slurm's data of a job: its accounting records, also of earlier attempts, and slurmctld's."""
    fields = "--format=JobID,State,ExitCode,Submit,Start,End,DBIndex,Comment"
    records = world.lab.run(("sacct", "-nPXD", "-j", job_id, fields), check=False).stdout
    shown = world.lab.run(("scontrol", "-o", "show", "job", job_id), check=False).stdout
    return {"records": records, "slurmctld": shown}


def _end_clean(lab: testing.RunningLab, report: Report, log: EventLog) -> None:
    """Nothing is left in the cluster, and no node is drained."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while (left := _leftovers(lab)) and time.monotonic() < deadline:
        time.sleep(1)
    report.faults.extend(left)
    log.note("leftovers", found=left)


def _leftovers(lab: testing.RunningLab) -> list[str]:
    argv = ("kubectl", "get", "pods,secrets", "-A", "-l", "app=slurm-job", "-o", "name")
    orphans = [f"orphan {name}" for name in lab.run(argv).stdout.split()]
    lines = lab.run(("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %T %E")).stdout.splitlines()
    return orphans + [f"node {line}" for line in lines if " idle " not in line]


@contextmanager
def watched(lab: testing.RunningLab, report: Report, log: EventLog) -> Iterator[None]:
    """Checks the invariants continuously."""
    stop = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_look_on(lab, report, log, stop)))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


async def _look_on(lab: testing.RunningLab, report: Report, log: EventLog, stop: threading.Event) -> None:
    variables = lab.env
    kube = client.KubeClient(kubeconfig.load(Path(variables[wellknown.ENV_KUBECONFIG])))
    looker = collect.Looker(kube, variables[wellknown.ENV_SLURM_CONF], variables[wellknown.ENV_SOCKET])
    onlooker = Onlooker(looker, report, log)
    try:
        with labcheck.its_programs(variables):
            while not stop.is_set():
                await onlooker.look()
                await asyncio.sleep(LOOK_EVERY)
    finally:
        await kube.close()


class Onlooker:
    """Separates violations from the effects of foreign pods."""

    def __init__(self, looker: collect.Looker, report: Report, log: EventLog) -> None:
        self._looker, self._report, self._log = looker, report, log
        self._seen: snapshots.Snapshot | None = None
        self._unknown = ""
        self._checker = checking.Checker(self._see, clock.SystemClock(), confirmed.Confirmer(PATIENCE))

    async def _see(self) -> snapshots.Snapshot:
        self._seen = await self._looker.look()
        return self._seen

    async def look(self) -> None:
        """Check once; every violation is reported once."""
        found = await self._checker.look()
        self._report.looks += 1
        self._report.blind += bool(found.unknown)
        if found.unknown != self._unknown:
            self._unknown = found.unknown
            self._log.note("looks", unknown=found.unknown)
        for one in found.violations:
            if one.kind == "crowded" and self._seen and judging.is_room_for_all(self._seen, one.subject):
                self._report.contended += 1
            elif (text := reports.as_text((one,))) not in self._report.violations:
                self._report.violations.add(text)
                self._log.note("violation", text=text)
