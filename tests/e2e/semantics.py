"""Shared by the tests of docs/semantics.md: the same script as a plain Slurm job and as a pod, and their
records.

Plain Slurm is the oracle. Jobs are submitted and awaited together: a lab runs dozens at once, and waiting for
them one by one would take minutes.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from penstock.kube import kinds
from penstock_lab import testing
from penstock_lab.kubernetes import api

Lab = testing.RunningLab
POLL = 0.1
Json = dict[str, Any]
PLAIN, PODS = "host", "gpu"
NOT_THE_END = testing.NOT_THE_END
ACCOUNTING = ("sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State,ExitCode,End")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table: what is submitted."""

    script: str = ""
    """Empty for --wrap, which has none."""
    options: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Record:
    """A job's end in Slurm."""

    state: str
    code: str


@dataclasses.dataclass(frozen=True)
class Trace:
    """A job's record and the files in its folder, by name."""

    job_id: str
    record: Record
    files: dict[str, bytes]


def folder(lab: Lab, name: str = "") -> Path:
    """A new empty folder of the user's on the NAS."""
    path = lab.home / f"{name or 'test'}-{secrets.token_hex(4)}"
    lab.run_as_user(("mkdir", str(path)))
    return path


def submit(lab: Lab, row: Row, *, partition: str = PODS, cwd: Path) -> str:
    """Submit from that folder; returns the job id."""
    argv = ["sbatch", "--parsable", f"--partition={partition}", *row.options]
    if row.script:
        script = cwd.parent / f"{cwd.name}.script"
        script.write_text(row.script)
        argv += [str(script), *row.arguments]
    return lab.run_as_user(argv, cwd=cwd).stdout.strip()


def ended(lab: Lab, job_ids: Iterable[str]) -> dict[str, Record]:
    """The ends of those jobs that have ended, from the accounting; for arrays, of all tasks."""
    wanted = sorted(job_ids)
    lines = lab.run((*ACCOUNTING, f"--jobs={','.join(wanted)}")).stdout.splitlines()
    rows = [line.split("|") for line in lines]
    found = {}
    for job_id in wanted:
        own = [row for row in rows if row[0] == job_id or row[0].startswith(f"{job_id}_")]
        if own and all(row[3] not in ("", "Unknown") and row[1] not in NOT_THE_END for row in own):
            found[job_id] = Record(
                " ".join(row[1].split()[0] for row in own), " ".join(row[2] for row in own)
            )
    return found


def records(lab: Lab, job_ids: Iterable[str], *, timeout: float = 180) -> dict[str, Record]:
    """Wait for all jobs; returns their ends, or raises TimeoutError with those that have not ended."""
    wanted = set(job_ids)
    found: dict[str, Record] = {}
    for _ in testing.looks(timeout):
        found = ended(lab, wanted)
        if wanted <= found.keys():
            return {job_id: found[job_id] for job_id in wanted}
    missing = sorted(wanted - found.keys())
    raise TimeoutError(f"not ended: {missing}\n{lab.run(('squeue', '--all')).stdout}")


def record(lab: Lab, job_id: str, *, timeout: float = 180) -> Record:
    return records(lab, (job_id,), timeout=timeout)[job_id]


def wait_until(true: Callable[[], object], what: str, *, timeout: float = 120) -> None:
    """Poll; raises AssertionError with the condition's description."""
    assert any(true() for _ in testing.looks(timeout)), f"not within {timeout:g} s: {what}"


def wait_for_text(file: Path, text: str, *, timeout: float = 120) -> None:
    """The file exists and contains the text."""
    wait_until(lambda: file.exists() and text in file.read_text(), f"{file} says {text!r}", timeout=timeout)


def field(lab: Lab, job_id: str, name: str) -> str:
    """A field of `scontrol show job` that has its own line, such as Comment; empty if absent."""
    for line in lab.run(("scontrol", "show", "job", job_id)).stdout.splitlines():
        if line.strip().startswith(f"{name}="):
            return line.strip().removeprefix(f"{name}=")
    return ""


def pods(lab: Lab, job_id: str) -> list[Json]:
    """The job's pods as the API has them."""
    return selected(lab, f"penstock.dev/job-id={job_id}")


def selected(lab: Lab, labels: str) -> list[Json]:
    """The pods with these labels, by a direct request: kubectl costs as much as a job."""
    return list(api.cluster(Path(lab.env["KUBECONFIG"])).items(kinds.PODS, dict, labels=labels))


def requests(pod: Json) -> dict[str, str]:
    found: dict[str, str] = pod["spec"]["containers"][0]["resources"]["requests"]
    return found


def twins(lab: Lab, rows: dict[str, Row]) -> dict[str, dict[str, Trace]]:
    """Run every row in plain Slurm and as a pod, all at once; returns the results by row and partition."""
    base = folder(lab, "twins")
    submitted: dict[tuple[str, str], tuple[str, Path]] = {}
    for partition in (PLAIN, PODS):
        for name, row in rows.items():
            cwd = base / f"{partition}-{name}"
            lab.run_as_user(("mkdir", str(cwd)))
            submitted[name, partition] = (submit(lab, row, partition=partition, cwd=cwd), cwd)
    found_records = records(lab, (job_id for job_id, _ in submitted.values()))
    found: dict[str, dict[str, Trace]] = {name: {} for name in rows}
    for (name, partition), (job_id, cwd) in submitted.items():
        # The id as a number of its own, padded or not, never a digit of something else.
        number = re.compile(rf"(?<![0-9a-f])0*{job_id}(?![0-9a-f])")
        files = {number.sub("JOB", path.name): path.read_bytes() for path in cwd.iterdir()}
        found[name][partition] = Trace(job_id, found_records[job_id], files)
    return found
