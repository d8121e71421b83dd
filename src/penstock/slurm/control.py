"""What penstockd may ask of Slurm and tell it, as methods: only here are its programs named."""

from __future__ import annotations

import dataclasses

from penstock import errors
from penstock.model import jobs
from penstock.slurm import commands, parsing


@dataclasses.dataclass(frozen=True)
class SlurmControl:
    """Slurm, reached through its own commands and one slurm.conf."""

    slurm_conf: str

    async def live_jobs(self) -> tuple[jobs.LiveJob, ...]:
        """Every job slurmctld still remembers, finished ones included for MinJobAge."""
        argv = (
            "squeue",
            "--noheader",
            "--all",
            "--states=all",
            "--array",
            f"--Format={parsing.SQUEUE_FIELDS}",
        )
        return parsing.live_jobs(await commands.run(argv, slurm_conf=self.slurm_conf))

    async def live_job(self, job_id: int) -> jobs.LiveJob | None:
        """One job, or None when slurmctld does not know it."""
        argv = (
            "squeue",
            "--noheader",
            "--all",
            "--states=all",
            f"--jobs={job_id}",
            f"--Format={parsing.SQUEUE_FIELDS}",
        )
        try:
            found = parsing.live_jobs(await commands.run(argv, slurm_conf=self.slurm_conf))
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError as error:
            if "Invalid job id" in error.message:
                return None
            raise
        return next((job for job in found if job.identity.job_id == job_id), None)

    async def shares(self, job_id: int) -> tuple[jobs.NodeShare, ...]:
        """The job's share of each of its nodes."""
        argv = ("scontrol", "--detail", "show", "job", str(job_id))
        return parsing.shares(await commands.run(argv, slurm_conf=self.slurm_conf))

    async def set_comment(self, job_id: int, text: str) -> None:
        """Tell the job's owner something where squeue and sacct show it."""
        argv = ("scontrol", "update", f"JobId={job_id}", f"Comment={text}")
        await commands.run(argv, slurm_conf=self.slurm_conf)
