"""job_summary.json and job_summary.txt: one job's end, for programs and for people.

What is not known is null, never a guess.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable

import msgspec

from penstock.model import attempts, jobs

JSON_NAME = "job_summary.json"
TEXT_NAME = "job_summary.txt"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MEMORY = re.compile(r"^memory (\d{1,18}) (\d{1,18})$", re.MULTILINE)
_PAGE = 4096  # limits are rounded to pages
_TIMES = re.compile(r"(\d+)m(\d+(?:[.,]\d+)?)s (\d+)m(\d+(?:[.,]\d+)?)s")


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """UTC, as 2026-01-31T12:00:00Z."""

    queued: str | None = None
    started: str | None = None
    ended: str | None = None
    container_started: str | None = None
    container_ended: str | None = None
    collected: str | None = None


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """One pod of the attempt."""

    name: str
    namespace: str
    rank: int
    node: str
    image: str
    image_digest: str | None
    exit_code: int | None
    reason: str


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What Slurm gave the job, over all its nodes."""

    nodes: int
    cpus: float
    memory_bytes: int
    gpus: int


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of what it used."""

    elapsed_seconds: float | None = None
    cpu_seconds: float | None = None
    """Of the script and all it waited for, as the shell that started it counts."""
    memory_bytes: int | None = None
    """The most that rank 0's container had at once, files in the page cache included."""


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    """What was collected into outputs/."""

    patterns: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one attempt of a job."""

    version: int = 1
    job: str
    job_id: int
    name: str | None
    user: str
    uid: int
    account: str | None
    partition: str
    qos: str | None
    state: str | None
    exit_code: int | None
    signal: int | None
    kind: str | None
    reason: str
    restarts: int
    attempt_id: str
    submission: str | None = None
    """The same in all attempts of a job, and in no other job that had its number."""
    times: Times
    nodes: tuple[str, ...]
    pods: tuple[Pod, ...]
    image: str
    image_digest: str | None
    asked: Asked
    used: Used
    workdir: str
    lost_workdir: str | None = None
    """Where it was submitted, if pods do not see that: then what it left in `workdir` went with its pod."""
    stdout: str
    stderr: str
    outputs: Outputs = Outputs()
    complete: bool = False
    problem: str = ""
    given_up: bool = False
    """What is missing will not come any more."""
    notes: tuple[str, ...] = ()


def attempt_id(attempt: attempts.Attempt) -> str:
    """Tells this attempt from every other, also of another job that has its number."""
    return f"{attempt.job_id}-{attempt.restart}-{attempt.token[:8]}"


def shown_id(attempt: attempts.Attempt, record: jobs.JobRecord | None) -> str:
    """What users call the job: as slurmctld did at its launch, or else as the accounting does."""
    return attempt.shown_id or (record.shown_id if record else str(attempt.job_id))


def summarise(attempt: attempts.Attempt, record: jobs.JobRecord | None, *, user: str, now: float) -> Summary:
    """All that is known before any file has been looked at."""
    code, signal = _exit(attempt, record)
    pods = tuple(map(_pod, attempt.pods))
    first = next((pod for pod in attempt.pods if pod.rank == 0), None)
    return Summary(
        job=shown_id(attempt, record),
        job_id=attempt.job_id,
        name=record.name or None if record else None,
        user=user,
        uid=attempt.uid,
        account=record.account or None if record else None,
        partition=attempt.partition,
        qos=attempt.qos or None,
        state=record.state if record else None,
        exit_code=code,
        signal=signal,
        kind=attempt.end.kind if attempt.end else None,
        reason=attempt.end.reason if attempt.end else "",
        restarts=attempt.restart,
        attempt_id=attempt_id(attempt),
        submission=attempt.submission or None,
        times=_times(record, first, now),
        nodes=tuple(share.node for share in attempt.shares),
        pods=pods,
        image=attempt.image,
        image_digest=next((pod.image_digest for pod in pods if pod.rank == 0), None),
        asked=_asked(attempt),
        used=_used(attempt, record, first),
        workdir=_text(attempt.workdir),
        lost_workdir=_text(attempt.lost_workdir) or None,
        stdout=_text(attempt.stdout),
        stderr=_text(attempt.stderr),
    )


def _exit(attempt: attempts.Attempt, record: jobs.JobRecord | None) -> tuple[int | None, int | None]:
    """The container's own code where it is known: sacct shows 137 as a signal that was none."""
    if attempt.end is not None:
        return (0, attempt.end.signal) if attempt.end.signal else (attempt.end.exit_code, 0)
    return (record.exit_code, record.signal) if record else (None, None)


def _pod(pod: attempts.PodFacts) -> Pod:
    digest = _DIGEST.search(pod.image_id)
    return Pod(
        name=pod.name,
        namespace=pod.namespace,
        rank=pod.rank,
        node=pod.node,
        image=pod.image,
        image_digest=digest[0] if digest else None,
        exit_code=pod.exit_code,
        reason=pod.reason,
    )


def _times(record: jobs.JobRecord | None, pod: attempts.PodFacts | None, now: float) -> Times:
    return Times(
        queued=_utc(record.submitted) if record else None,
        started=_utc(record.started) if record else None,
        ended=_utc(record.ended) if record else None,
        container_started=(pod.started if pod else "") or None,
        container_ended=(pod.ended if pod else "") or None,
        collected=_utc(now),
    )


def _utc(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _asked(attempt: attempts.Attempt) -> Asked:
    return Asked(
        nodes=len(attempt.shares),
        cpus=sum(share.millicpus for share in attempt.shares) / 1000,
        memory_bytes=sum(share.memory for share in attempt.shares),
        gpus=sum(share.gpus for share in attempt.shares),
    )


def _used(attempt: attempts.Attempt, record: jobs.JobRecord | None, pod: attempts.PodFacts | None) -> Used:
    elapsed = None
    if record and record.started is not None and record.ended is not None:
        elapsed = record.ended - record.started
    words, share = (pod.message, attempt.shares[:1]) if pod else ("", ())
    return Used(
        elapsed_seconds=elapsed,
        cpu_seconds=cpu_seconds(words),
        memory_bytes=memory_bytes(words, limit=share[0].memory) if share else None,
    )


def memory_bytes(last_words: str, *, limit: int) -> int | None:
    """The most that the container had, if what the agent read was of this container: its limit tells."""
    match = _MEMORY.search(last_words)
    if match is None or int(match[2]) // _PAGE != limit // _PAGE:
        return None
    return int(match[1])


def cpu_seconds(last_words: str) -> float | None:
    """From what a shell's `times` prints: its own, then its children's, user and system; None if it is not
    there.
    """
    lines = [match for line in last_words.split("\n") if (match := _TIMES.fullmatch(line.strip()))]
    if len(lines) != 2:
        return None
    total = sum(
        60 * int(match[first]) + float(match[first + 1].replace(",", "."))
        for match in lines
        for first in (1, 3)
    )
    return round(total, 3)


def _text(path: bytes) -> str:
    return path.decode(errors="replace")


def as_json(summary: Summary) -> bytes:
    return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"


def as_text(summary: Summary, *, when: Callable[[str], str] = str) -> str:
    """For people: one fact a line, what is wrong first; `when` says how times are written."""
    lines = []
    if not summary.complete:
        problem = f": {summary.problem}" if summary.problem else ""
        then = "given up" if summary.given_up else "will be tried again"
        lines += [f"INCOMPLETE, {then}{problem}", ""]
    lines += [f"{name:<10} {value}" for name, value in _facts(summary, when) if value]
    lines += ["", *(f"* {note}" for note in summary.notes)] if summary.notes else []
    return "".join(f"{_one_line(line)}\n" for line in lines)


def _one_line(text: str) -> str:
    """Names are users' text: nothing in them may look like another line, or drive a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _facts(summary: Summary, when: Callable[[str], str]) -> list[tuple[str, str]]:
    asked, used, times = summary.asked, summary.used, summary.times
    unknown = "not known"
    cpu = f"{used.cpu_seconds:g} s of CPU" if used.cpu_seconds is not None else f"CPU time {unknown}"
    memory = f"{used.memory_bytes // 2**20} MiB" if used.memory_bytes is not None else f"memory {unknown}"
    elapsed = f"{used.elapsed_seconds:g} s" if used.elapsed_seconds is not None else f"time {unknown}"
    return [
        ("job", f"{summary.job} {summary.name or ''}".rstrip()),
        ("user", f"{summary.user} ({summary.uid})" + (f", {summary.account}" if summary.account else "")),
        ("state", f"{summary.state or unknown}{_end(summary)}"),
        ("reason", summary.reason),
        ("restarts", str(summary.restarts)),
        ("queued", when(times.queued) if times.queued else unknown),
        ("started", when(times.started) if times.started else unknown),
        ("ended", when(times.ended) if times.ended else unknown),
        ("partition", summary.partition),
        ("nodes", ", ".join(summary.nodes)),
        ("pods", ", ".join(f"{pod.namespace}/{pod.name}" for pod in summary.pods)),
        ("image", summary.image),
        ("digest", summary.image_digest or unknown),
        ("asked", f"{asked.cpus:g} CPUs, {asked.memory_bytes // 2**20} MiB, {asked.gpus} GPUs"),
        ("used", f"{elapsed}, {cpu}, {memory}"),
        ("workdir", _workdir(summary)),
        ("stdout", summary.stdout),
        ("stderr", summary.stderr if summary.stderr != summary.stdout else "in stdout.log"),
        ("outputs", f"{summary.outputs.files} files, {summary.outputs.bytes} bytes"),
    ]


def _workdir(summary: Summary) -> str:
    if summary.lost_workdir is None:
        return summary.workdir
    return f"{summary.workdir} of the pod, gone with it: pods do not see {summary.lost_workdir}"


def _end(summary: Summary) -> str:
    if summary.signal and not summary.pods:  # an error number of slurmd's
        return f", not started ({summary.exit_code or 0}:{summary.signal})"
    if summary.signal:
        return f", killed by signal {summary.signal}"
    return f", exit code {summary.exit_code}" if summary.exit_code is not None else ""
