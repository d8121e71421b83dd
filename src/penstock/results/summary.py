"""job_summary.json and job_summary.txt: how an attempt ended. Unknown values are null, never a guess."""

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
    name: str
    namespace: str
    rank: int
    node: str
    image: str
    image_digest: str | None
    exit_code: int | None
    reason: str


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    nodes: int
    cpus: float
    memory_bytes: int
    gpus: int


class Used(msgspec.Struct, frozen=True, kw_only=True):
    elapsed_seconds: float | None = None
    cpu_seconds: float | None = None
    """Of the script and the children it waited for, from the shell's `times`."""
    memory_bytes: int | None = None
    """Peak memory of rank 0's container, including the page cache."""


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    patterns: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0


class Summary(msgspec.Struct, frozen=True, kw_only=True):
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
    """Equal in all attempts of a job, different in other jobs with the same id."""
    times: Times
    nodes: tuple[str, ...]
    pods: tuple[Pod, ...]
    image: str
    image_digest: str | None
    asked: Asked
    used: Used
    workdir: str
    lost_workdir: str | None = None
    """The submission folder, if it is not mounted in pods: then `workdir` was removed with the pod."""
    stdout: str
    stderr: str
    outputs: Outputs = Outputs()
    complete: bool = False
    problem: str = ""
    given_up: bool = False
    """The collector does not try again."""
    notes: tuple[str, ...] = ()


def attempt_id(attempt: attempts.Attempt) -> str:
    """Unique, also among jobs that had the same id."""
    return f"{attempt.job_id}-{attempt.restart}-{attempt.token[:8]}"


def shown_id(attempt: attempts.Attempt, record: jobs.JobRecord | None) -> str:
    """The job's name for users, such as 20_3: from slurmctld at launch, else from accounting."""
    return attempt.shown_id or (record.shown_id if record else str(attempt.job_id))


def summarise(attempt: attempts.Attempt, record: jobs.JobRecord | None, *, user: str, now: float) -> Summary:
    """The summary before any file is collected."""
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
    """From the container if known: sacct reports exit code 137 as a signal."""
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
    message, share = (pod.message, attempt.shares[:1]) if pod else ("", ())
    return Used(
        elapsed_seconds=elapsed,
        cpu_seconds=cpu_seconds(message),
        memory_bytes=memory_bytes(message, limit=share[0].memory) if share else None,
    )


def memory_bytes(message: str, *, limit: int) -> int | None:
    """Peak memory, if the cgroup that the agent read is this container's, which its limit shows."""
    match = _MEMORY.search(message)
    if match is None or int(match[2]) // _PAGE != limit // _PAGE:
        return None
    return int(match[1])


def cpu_seconds(message: str) -> float | None:
    """Sum of the shell's `times`: user and system time, its own and its children's; None without."""
    lines = [match for line in message.split("\n") if (match := _TIMES.fullmatch(line.strip()))]
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
    """One fact per line, problems first; `when` formats times."""
    lines = []
    if not summary.complete:
        problem = f": {summary.problem}" if summary.problem else ""
        then = "given up" if summary.given_up else "will be retried"
        lines += [f"INCOMPLETE, {then}{problem}", ""]
    lines += [f"{name:<10} {value}" for name, value in _facts(summary, when) if value]
    lines += ["", *(f"* {note}" for note in summary.notes)] if summary.notes else []
    return "".join(f"{_one_line(line)}\n" for line in lines)


def _one_line(text: str) -> str:
    """Replace line breaks and terminal controls: names are users' text."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _facts(summary: Summary, when: Callable[[str], str]) -> list[tuple[str, str]]:
    asked, used, times = summary.asked, summary.used, summary.times
    unknown = "unknown"
    cpu = f"{used.cpu_seconds:g} s CPU time" if used.cpu_seconds is not None else f"CPU time {unknown}"
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
        ("allocated", f"{asked.cpus:g} CPUs, {asked.memory_bytes // 2**20} MiB, {asked.gpus} GPUs"),
        ("used", f"{elapsed}, {cpu}, {memory}"),
        ("workdir", _workdir(summary)),
        ("stdout", summary.stdout),
        ("stderr", summary.stderr if summary.stderr != summary.stdout else "in stdout.log"),
        ("outputs", f"{summary.outputs.files} files, {summary.outputs.bytes} bytes"),
    ]


def _workdir(summary: Summary) -> str:
    if summary.lost_workdir is None:
        return summary.workdir
    return f"{summary.workdir} in the pod, removed with it: {summary.lost_workdir} is not mounted in pods"


def _end(summary: Summary) -> str:
    if summary.signal and not summary.pods:  # an error number of slurmd
        return f", not started ({summary.exit_code or 0}:{summary.signal})"
    if summary.signal:
        return f", killed by signal {summary.signal}"
    return f", exit code {summary.exit_code}" if summary.exit_code is not None else ""
