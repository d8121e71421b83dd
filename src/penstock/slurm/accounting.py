"""Ends of jobs' attempts, from Slurm's accounting, or else from slurmctld's memory.

A requeued job has a record per attempt; they differ in their start. Names and comments are users' text and
may contain anything, so sacct is called with an unpredictable separator (fields.py).
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from penstock import errors
from penstock.model import jobs, numbers, states
from penstock.model.comments import printable
from penstock.slurm import commands, fields, jobtexts, reader

COLUMNS = (
    *("JobIDRaw", "JobID", "UID", "State", "ExitCode", "Submit", "Start", "End", "Elapsed"),
    *("Account", "Partition", "QOS", "User", "JobName", "NodeList", "Comment"),
)
OWNER_UNKNOWN = 0
"""The uid of an attempt that ended before slurmdbd learned of its start. The true one follows, but perhaps
never for an attempt that was requeued.
"""
_CLOCK_SLACK = 2.0  # Slurm counts whole seconds


async def ended(slurm_conf: str, job_ids: Iterable[int]) -> tuple[jobs.JobRecord, ...]:
    """All ended attempts of these jobs."""
    found = await records(slurm_conf, ",".join(map(str, job_ids)), "--allusers", "--duplicates")
    return tuple(map(_as_end, (record for record in found if record.ended is not None)))


def _as_end(record: jobs.JobRecord) -> jobs.JobRecord:
    if record.state not in states.SENT_BACK:
        return record
    return msgspec.structs.replace(record, state=states.JobState.REQUEUED)


async def comments(slurm_conf: str, job_ids: Collection[int]) -> dict[int, str]:
    """Comments in the accounting, which can be longer than those in slurmctld."""
    found = await records(slurm_conf, ",".join(map(str, sorted(job_ids))), "--allusers")
    return {record.job_id: record.comment for record in found}


async def records(slurm_conf: str, named: str, *options: str) -> tuple[jobs.JobRecord, ...]:
    """Records of jobs such as 17,20_3: of the last attempt or, with --duplicates, of all."""
    rows = await _sacct(slurm_conf, COLUMNS, f"--jobs={named}", *options)
    return tuple(found for found in map(record, rows) if found is not None)


async def submit_lines(
    slurm_conf: str, uid: int, *, since: datetime.datetime, within: float
) -> list[tuple[str, str]]:
    """Ids and submit lines of all jobs of a user since then."""
    times = (f"--starttime={since:%Y-%m-%dT%H:%M:%S}", "--endtime=now+1days")
    options = ("--duplicates", f"--user={uid}", *times)
    rows = await _sacct(slurm_conf, ("JobID", "SubmitLine"), *options, within=within)
    return [(row["JobID"], row["SubmitLine"]) for row in rows]


async def _sacct(
    slurm_conf: str, names: Sequence[str], *options: str, within: float = commands.TIMEOUT
) -> list[dict[str, str]]:
    separator = fields.made_up()
    argv = ("sacct", "--noheader", "--parsable", f"--delimiter={separator}", "--allocations", *options)
    asked = (*argv, f"--format={','.join(names)}")
    text = await commands.run(asked, slurm_conf=slurm_conf, within=within)
    return fields.rows(text, separator, names)


def record(said: Mapping[str, str]) -> jobs.JobRecord | None:
    """From COLUMNS; None if the row does not name a job and its owner."""
    job_id, uid = numbers.natural(said["JobIDRaw"]), numbers.natural(said["UID"])
    if job_id is None or uid is None:
        return None
    return jobs.JobRecord(
        job_id=job_id,
        shown_id=said["JobID"],
        uid=uid,
        state=said["State"].partition(" ")[0],  # CANCELLED by 1001
        end=said["ExitCode"],
        submitted=_seconds(said["Submit"]),
        started=_seconds(said["Start"]),
        ended=_seconds(said["End"]),
        elapsed=jobtexts.duration(said["Elapsed"]),
        account=said["Account"],
        partition=said["Partition"],
        qos=said["QOS"],
        user=said["User"],
        name=said["JobName"],
        nodes=jobtexts.nodes(said["NodeList"]),
        comment=said["Comment"],
    )


def _seconds(text: str) -> float | None:
    found = jobtexts.seconds(text)
    return float(found) if found else None


async def set_comment(slurm_conf: str, job_id: int, text: str) -> None:
    """Of an ended job, for which slurmctld no longer accepts one."""
    where = ("where", f"jobid={job_id}", "set", f"comment={printable(text)}")
    await commands.run(("sacctmgr", "--immediate", "modify", "job", *where), slurm_conf=slurm_conf)


def attempt_among(
    rows: Iterable[jobs.JobRecord], *, job_id: int, uid: int, launched: float
) -> jobs.JobRecord | None:
    """The attempt that was launched then: the last that had started by that time, if it is this user's."""
    began = [
        (row.started, row)
        for row in rows
        if row.job_id == job_id and row.uid == uid and row.started is not None
        if row.started <= launched + _CLOCK_SLACK
    ]
    found = max(began, key=lambda pair: pair[0], default=(0.0, None))[1]
    still = found is not None and found.ended is not None and found.ended < launched - _CLOCK_SLACK
    return None if still else found


async def remembered(slurm_conf: str, job_id: int, *, uid: int, restart: int) -> jobs.JobRecord | None:
    """The same from slurmctld, until MinJobAge. Of a requeued attempt it only knows that."""
    try:
        return _remembered(await reader.SlurmReader(slurm_conf).shown(job_id), uid=uid, restart=restart)
    except errors.SlurmUnavailable:
        raise
    except errors.SlurmError:
        return None


def _remembered(job: jobs.Job, *, uid: int, restart: int) -> jobs.JobRecord | None:
    now = job.identity.restart
    if job.identity.uid != uid or now < restart or (now == restart and job.goes_on):
        return None
    is_end = now == restart
    return jobs.JobRecord(
        job_id=job.job_id,
        shown_id="_".join(map(str, job.array or (job.job_id,))),
        uid=uid,
        state=job.state if is_end else states.JobState.REQUEUED,
        end=f"{job.exit_code}:{job.signal}" if is_end else "0:0",
        partition=job.partition,
    )
