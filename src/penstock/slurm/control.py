"""Changes that penstockd makes in Slurm."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from penstock import errors
from penstock.model import comments, jobs, states
from penstock.slurm import marks, reader


@dataclasses.dataclass(frozen=True)
class SlurmControl(reader.SlurmReader):
    """Reads and changes Slurm."""

    async def set_comment(self, job_id: int, text: str) -> None:
        """Set the job's comment, which squeue and sacct show."""
        await self._comment(await self._named(job_id), text)

    async def say_why_it_waits(self, job_id: int, reason: str) -> None:
        """Put the reason in front of the owner's comment."""
        row = await self._row(job_id, (*reader.NAMING, "Comment"))
        await self._comment(reader.name_in(row), comments.waiting(reason, row["Comment"]))

    async def _comment(self, name: str, text: str) -> None:
        await self._update(f"JobId={name}", f"Comment={comments.printable(text)}")

    async def requeue(self, job_id: int) -> None:
        """Requeue the job. SlurmError if that is not allowed."""
        await self._run("scontrol", "requeue", await self._named(job_id))

    async def let_wait(self, job_id: int) -> None:
        """Allow requeueing of a --no-requeue job until it starts; the mark keeps its choice."""
        row = await self._row(job_id, (*reader.NAMING, "admin_comment"))
        mark = marks.read(row["admin_comment"])
        if mark is not None:
            words = marks.write(dataclasses.replace(mark, requeue=False), row["admin_comment"])
            await self._update(f"JobId={reader.name_in(row)}", "Requeue=1", f"AdminComment={words}")

    async def set_requeue(self, job_id: int, *, allowed: bool) -> None:
        """Whether the job may be requeued from now on."""
        await self._update_job(job_id, f"Requeue={int(allowed)}")

    async def cancel(self, job_id: int) -> None:
        await self._run("scancel", await self._named(job_id))

    async def steer(self, job: jobs.Job, *, avoids: Collection[str], seconds: int | None, until: int) -> None:
        """Exclude these nodes for a pending job, besides the owner's own exclusions, and delay its start by
        so many seconds (None leaves its start time alone). `until` is the same as a time, kept in the mark.
        """
        mark = marks.read(job.admin_comment)
        if mark is None:
            raise errors.SlurmError(f"job {job.job_id} was not submitted through job_submit.lua")
        changed = dataclasses.replace(mark, avoids=tuple(sorted(avoids)), until=until)
        words = [f"AdminComment={marks.write(changed, job.admin_comment)}"]
        if frozenset(job.excluded) != job.own_excluded | frozenset(avoids):
            words.append(f"ExcNodeList={','.join(sorted(job.own_excluded | frozenset(avoids)))}")
        if seconds is not None:
            words.append(f"StartTime=now+{seconds}" if seconds else "StartTime=now")
        await self._update_job(job.job_id, *words)

    async def drain(self, node: str, reason: str) -> None:
        """Start no new jobs on the node, for this reason."""
        await self._update(f"NodeName={node}", f"State={states.NodeState.DRAIN}", f"Reason={reason}")

    async def resume(self, node: str) -> None:
        await self._update(f"NodeName={node}", "State=RESUME")

    async def _update_job(self, job_id: int, *words: str) -> None:
        await self._update(f"JobId={await self._named(job_id)}", *words)

    async def _update(self, *words: str) -> None:
        await self._run("scontrol", "update", *words)
