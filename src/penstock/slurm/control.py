"""What penstockd may ask of Slurm and tell it, as methods: only here are its programs named."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

from penstock import errors
from penstock.model import comments, jobs, resources, states
from penstock.slurm import commands, describing, fields, marks, parsing, waiting

LONGEST_COMMENT = 4096  # characters: a part is other people's words, and no program takes 128 KiB, or a NUL


@dataclasses.dataclass(frozen=True)
class SlurmControl:
    """Slurm, reached through its own commands and one slurm.conf."""

    slurm_conf: str
    on_call: Callable[[str], None] = lambda program: None
    """Told of every command that is run."""
    gpu_resources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Kubernetes' resource names of GRES types whose GPUs are no nvidia.com/gpu."""

    async def cluster_name(self) -> str:
        """ClusterName, as slurmctld has it."""
        text = await commands.run(("scontrol", "show", "config"), slurm_conf=self.slurm_conf)
        return parsing.cluster_name(text)

    async def requeues_by_default(self) -> bool:
        """Whether jobs whose owners did not say may run twice."""
        return parsing.requeues_by_default(await self._run(("scontrol", "show", "config")))

    async def live_jobs(self) -> tuple[jobs.LiveJob, ...]:
        """Every job that may have pods: those that wait or have ended are many and have none."""
        argv = (
            "squeue",
            "--noheader",
            "--all",
            f"--states={','.join(sorted(states.HOLDING))}",
            "--array",
            f"--Format={parsing.SQUEUE_FIELDS}",
        )
        return parsing.live_jobs(await self._run(argv))

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
            found = parsing.live_jobs(await self._run(argv))
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError as error:
            if "Invalid job id" in error.message:
                return None
            raise
        if not found:  # slurmctld says "Invalid job id" of a job that it does not know; silence is no answer
            raise errors.SlurmUnavailable(f"squeue said nothing of job {job_id}")
        return next((job for job in found if job.identity.job_id == job_id), None)

    async def details(self, job_id: int) -> jobs.JobDetails:
        """A running job with its share of each of its nodes."""
        shown, row = await asyncio.gather(self.shares(job_id), self._row(job_id, parsing.DETAIL_FIELDS))
        return parsing.details(row, tuple(share.in_kubernetes(self.gpu_resources) for share in shown))

    async def shares(self, job_id: int) -> tuple[jobs.NodeShare, ...]:
        """What only scontrol tells, as it tells it."""
        return parsing.shares(await self._run(("scontrol", "--detail", "show", "job", str(job_id))))

    async def failed_launch(self, job_id: int) -> jobs.FailedLaunch | None:
        """How slurmd failed to start the job; None when it did not."""
        argv = ("scontrol", "show", "job", str(job_id))
        return parsing.failed_launch(await self._run(argv), job_id)

    async def set_comment(self, job_id: int, text: str) -> None:
        """Tell the job's owner something where squeue and sacct show it."""
        await self._comment(await self._named(job_id), text)

    async def say_why_it_waits(self, job_id: int, reason: str) -> None:
        """Put the reason before the comment of the job's owner."""
        array, task, comment = await self._row(job_id, ("ArrayJobID", "ArrayTaskID", "Comment"))
        name = parsing.shown_id(str(job_id), array, task)
        await self._comment(name, comments.waiting(reason, comment))

    async def _comment(self, name: str, text: str) -> None:
        said = "".join(each if each.isprintable() else " " for each in text[:LONGEST_COMMENT])
        await self._update(f"JobId={name}", f"Comment={said}")

    async def requeue(self, job_id: int) -> None:
        """Back to the queue under the same id; SlurmError when the job may not be requeued."""
        await self._run(("scontrol", "requeue", await self._named(job_id)))

    async def let_wait(self, job_id: int) -> None:
        """Let a job that may not be requeued go back to the queue until it starts, and remember its word."""
        (comment,) = await self._row(job_id, ("admin_comment",))
        mark = marks.read(comment)
        if mark is not None:
            words = marks.write(dataclasses.replace(mark, requeue=False), comment)
            await self._update(f"JobId={await self._named(job_id)}", "Requeue=1", f"AdminComment={words}")

    async def set_requeue(self, job_id: int, *, allowed: bool) -> None:
        """Whether the job may go back to the queue from now on."""
        await self._update(f"JobId={await self._named(job_id)}", f"Requeue={int(allowed)}")

    async def cancel(self, job_id: int) -> None:
        """The job's end."""
        await self._run(("scancel", await self._named(job_id)))

    async def is_older_than_controller(self, job_id: int) -> bool:
        """Whether slurmctld was started after this attempt of the job was."""
        (started,) = await self._row(job_id, ("StartTime",))
        config = await self._run(("scontrol", "show", "config"))
        if not started[:1].isdigit():
            raise errors.SlurmError(f"squeue shows no StartTime of job {job_id}")
        return started < parsing.boot_time(config)

    async def waiting(self, job_id: int) -> jobs.WaitingJob | None:
        """What keeps a job in the queue from starting; None when it is not there, or not there any more."""
        try:
            row = await self._row(job_id, waiting.FIELDS)
            text = await self._run((*_asked(job_id), f"--format={waiting.EXCLUDED}"))
            return waiting.waiting_job(row, waiting.excluded(text, job_id), job_id)
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError:  # it has gone meanwhile
            return None

    async def queued(self, job_ids: Sequence[int]) -> tuple[jobs.Queued, ...]:
        """Those of the jobs that Slurm still has in its queue or running."""
        wanted = ",".join(map(str, job_ids))
        argv = ("squeue", "--noheader", "--all", "--array", f"--jobs={wanted}")
        try:
            return waiting.queued(await self._run((*argv, f"--Format={waiting.QUEUE_FIELDS}")))
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError as error:
            if "Invalid job id" in error.message:
                return ()
            raise

    async def put_off(self) -> tuple[int, ...]:
        """Jobs in the queue that penstockd keeps from nodes, or lets wait."""
        separator, argv = fields.made_up(), ("squeue", "--noheader", "--all", "--array", "--states=PENDING")
        text = await self._run((*argv, fields.wanted(waiting.MARK_FIELDS, separator)))
        return waiting.put_off(fields.rows(text, separator, len(waiting.MARK_FIELDS)))

    async def steer(
        self, job: jobs.WaitingJob, *, avoids: Collection[str], seconds: int | None, until: int
    ) -> None:
        """Keep a job in the queue from these nodes, beside those that its owner excludes, and try it again
        after so many seconds; None leaves its start time alone. `until` is the same as a time, for later.
        """
        mark = marks.read(job.admin_comment)
        if mark is None:
            raise errors.SlurmError(f"job {job.job_id} did not come through job_submit.lua")
        changed = dataclasses.replace(mark, avoids=tuple(sorted(avoids)), until=until)
        words = [f"AdminComment={marks.write(changed, job.admin_comment)}"]
        if frozenset(job.excluded) != job.own_excluded | frozenset(avoids):
            words.append(f"ExcNodeList={','.join(sorted(job.own_excluded | frozenset(avoids)))}")
        if seconds is not None:
            words.append(f"StartTime=now+{seconds}" if seconds else "StartTime=now")
        await self._update(f"JobId={await self._named(job.job_id)}", *words)

    async def targets(self, partition: str) -> tuple[jobs.Target, ...]:
        """The partition's nodes, as large as Slurm believes them to be."""
        nodes = await describing.nodes(self.slurm_conf)
        return tuple(self._target(node) for node in nodes if partition in node.partitions)

    def _target(self, node: describing.SlurmNode) -> jobs.Target:
        whole = resources.Amount(millicpus=1000 * node.cpus, memory=node.memory_mb * 2**20, gpus=node.gpus)
        share = jobs.NodeShare(node=node.name, amount=whole, gpus_by_type=node.gpus_by_type)
        return jobs.Target(
            name=node.name,
            amount=share.in_kubernetes(self.gpu_resources).amount,
            features=node.features,
            is_up=node.starts_jobs,
        )

    async def drain(self, node: str, reason: str) -> None:
        """No new jobs on the node, for this reason."""
        await self._update(f"NodeName={node}", "State=DRAIN", f"Reason={reason}")

    async def resume(self, node: str) -> None:
        """The node may be used again."""
        await self._update(f"NodeName={node}", "State=RESUME")

    async def drained(self, partitions: Collection[str]) -> tuple[jobs.Drain, ...]:
        """Nodes of these partitions that are drained, with the reason as it was given."""
        found = await self._nodes_that_are("drain")
        return tuple({drain.node: drain for partition, drain in found if partition in partitions}.values())

    async def given_to_nobody(self) -> dict[str, str]:
        """Nodes on which Slurm starts no job, with the reason: drained, down or failing."""
        return {drain.node: drain.reason for _, drain in await self._nodes_that_are("drain,down,fail")}

    async def _nodes_that_are(self, states: str) -> list[tuple[str, jobs.Drain]]:
        """In each of their partitions, hidden ones, too; sinfo cannot be asked for those by name."""
        asked = (f"--states={states}", "--Format=NodeList:|,PartitionName:|,Timestamp:|,Reason:|")
        text = await self._run(("sinfo", "--noheader", "--all", "--Node", *asked))
        lines = (line.split("|", 3) for line in text.split("\n"))
        return [
            (words[1].strip(), _drain(words[0].strip(), *words[2:])) for words in lines if len(words) == 4
        ]

    async def _named(self, job_id: int) -> str:
        """How commands that change something name this job and no other.

        The last task of an array has the array's own id: by that number alone all of its tasks are meant, and
        those that have ended would run again.
        """
        argv = (*_asked(job_id), f"--Format={parsing.ARRAY_FIELDS}")
        return parsing.name_of_task(await self._run(argv), job_id)

    async def _row(self, job_id: int, names: tuple[str, ...]) -> list[str]:
        """These fields of this one job, whatever text is in them; an array's number brings all its tasks."""
        separator = fields.made_up()
        argv = (*_asked(job_id), fields.wanted(("JobID", *names), separator))
        found = fields.rows(await self._run(argv), separator, len(names) + 1)
        own = [row[1:] for row in found if row[0] == str(job_id)]
        if len(own) != 1:
            raise errors.SlurmError(f"squeue knows {len(own)} jobs by the number {job_id}")
        return own[0]

    async def _update(self, *words: str) -> None:
        await self._run(("scontrol", "update", *words))

    async def _run(self, argv: tuple[str, ...]) -> str:
        self.on_call(argv[0])
        return await commands.run(argv, slurm_conf=self.slurm_conf)


def _drain(node: str, since: str, reason: str) -> jobs.Drain:
    """The reason is free text, which may have bars in it; sinfo puts one after it."""
    text = reason.rstrip().removesuffix("|").strip()
    return jobs.Drain(node=node, reason=text, since=float(since) if since.strip().isdigit() else 0.0)


def _asked(job_id: int) -> tuple[str, ...]:
    return ("squeue", "--noheader", "--all", "--states=all", "--array", f"--jobs={job_id}")
