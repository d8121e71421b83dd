"""Queries of slurmctld: jobs, nodes, partitions and settings, as data.

Output that cannot be parsed is an error, never fewer jobs or nodes.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

from penstock import errors
from penstock.model import jobs, releases, states
from penstock.model.nodes import Drain, Node, Partition
from penstock.model.slurmfacts import SlurmFacts
from penstock.model.states import NodeState
from penstock.slurm import commands, fields, jobtexts, marks, nodetexts

LAUNCH_FAILURE = "JobLaunchFailure"  # reason of a job that slurmd could not start
NAMING = ("JobID", "ArrayJobID", "ArrayTaskID")


@dataclasses.dataclass(frozen=True)
class SlurmReader:
    """Slurm, through its own commands and one slurm.conf."""

    slurm_conf: str
    on_call: Callable[[str], None] = lambda program: None  # called with the name of every command that is run
    gpu_resources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Resource names of GRES types whose GPUs are not nvidia.com/gpu."""

    # -- itself --------------------------------------------------------------------------------------------
    async def configuration(self) -> dict[str, str]:
        """slurmctld's running settings, by name."""
        return nodetexts.settings(await self._run("scontrol", "show", "config"))

    async def cluster_name(self) -> str:
        return await self._setting("ClusterName")

    async def facts(self) -> SlurmFacts:
        settings, partitions = await asyncio.gather(self.configuration(), self.partitions())
        default = next((partition.name for partition in partitions if partition.is_default), "")
        return SlurmFacts(
            cluster=settings.get("ClusterName", ""),
            release=releases.parse(settings.get("SLURM_VERSION", "")),
            appends=settings.get("JobFileAppend") == "1",
            default_partition=default,
            requeues=settings.get("JobRequeue") != "0",
        )

    async def _setting(self, name: str) -> str:
        found = (await self.configuration()).get(name)
        if not found:
            raise errors.SlurmError(f"scontrol show config names no {name}")
        return found

    # -- jobs ----------------------------------------------------------------------------------------------
    async def live_jobs(self) -> tuple[jobs.LiveJob, ...]:
        """Every job that may have pods; pending and ended ones have none."""
        options = ("--all", f"--states={','.join(sorted(states.HOLDING))}", "--array")
        return tuple(map(jobtexts.live_job, await self._squeue(jobtexts.LIVE_COLUMNS, *options)))

    async def live_job(self, job_id: int) -> jobs.LiveJob | None:
        """One job, or None if slurmctld does not know it."""
        found = await self._known(jobtexts.LIVE_COLUMNS, "--all", "--states=all", f"--jobs={job_id}")
        if found is not None and not found:  # no output is not an answer
            raise errors.SlurmUnavailable(f"squeue printed nothing about job {job_id}")
        return next((job for job in map(jobtexts.live_job, found or ()) if job.job_id == job_id), None)

    async def queued(self, job_ids: Sequence[int]) -> tuple[jobs.Job, ...]:
        """Those of the jobs that are pending or running."""
        wanted = f"--jobs={','.join(map(str, job_ids))}"
        found = await self._known(jobtexts.COLUMNS, "--all", "--array", wanted)
        return tuple(map(jobtexts.job, found or ()))

    async def shown_queue(self, *, user: str = "") -> tuple[jobs.Job, ...]:
        """Pending and running jobs that we may see, with every task of an array."""
        options = ("--array", f"--user={user}") if user else ("--array",)
        return tuple(
            map(jobtexts.job, await self._squeue((*jobtexts.COLUMNS, jobtexts.USER_COLUMN), *options))
        )

    async def unfinished(self) -> tuple[jobs.Job, ...]:
        """Every job that has not ended, in hidden partitions, too; pending tasks of an array are one."""
        return tuple(map(jobtexts.job, await self._squeue(jobtexts.COLUMNS, "--all")))

    async def names_of_jobs_in(self, partitions: Sequence[str], *, within: float) -> tuple[str, ...]:
        """Ids (as shown to users) of jobs that have not ended; pending tasks of an array are one."""
        options = ("--all", f"--partition={','.join(partitions)}")
        rows = await self._squeue(("JobArrayID",), *options, within=within)
        return tuple(row["JobArrayID"] for row in rows)

    async def scripts_of(self, uid: int, *, within: float) -> list[tuple[str, str]]:
        """Ids and scripts of all jobs of a user, also ended ones; an array counts as one job."""
        options = ("--all", "--states=all", f"--user={uid}")
        rows = await self._squeue(("ArrayJobID", "Command"), *options, within=within)
        return [(row["ArrayJobID"], row["Command"]) for row in rows]

    async def all_jobs(self) -> tuple[jobs.Job, ...]:
        """Every job, also ended ones for MinJobAge; those that hold resources with their shares."""
        rows = await self._squeue(jobtexts.COLUMNS, "--all", "--states=all", "--array")
        found = tuple(map(jobtexts.job, rows))
        holding = {job.job_id for job in found if job.holds_resources}
        shares = await self._all_shares(holding) if holding else {}
        return tuple(dataclasses.replace(job, shares=shares.get(job.job_id, ())) for job in found)

    async def _all_shares(self, wanted: Collection[int]) -> dict[int, tuple[jobs.NodeShare, ...]]:
        """In one call. A job that seems to be printed twice (by line breaks in a name) is queried alone."""
        text = await self._run("scontrol", "--detail", "show", "job")
        found: dict[int, str] = {}
        twice: set[int] = set()
        for job_id, block in jobtexts.blocks(text):
            twice |= {job_id} & found.keys() & set(wanted)
            found[job_id] = block
        shares = {job_id: _shares_in(found[job_id]) for job_id in found.keys() & set(wanted)}
        return shares | {job_id: await self._shares(job_id) for job_id in twice}

    async def details(self, job_id: int) -> jobs.Job:
        """A running job with its share of each of its nodes.

        Of a completing job squeue names only the nodes that it still has.
        """
        shares, row = await asyncio.gather(self._shares(job_id), self._row(job_id, jobtexts.COLUMNS))
        found = jobtexts.job(row)
        named, shown = set(found.nodes), {share.node for share in shares}
        if not named <= shown or (named != shown and found.state != states.JobState.COMPLETING):
            where = row["NodeList"]
            raise errors.SlurmError(
                f"scontrol shows shares of other nodes than the job has, which is on {where}"
            )
        if not found.partition:
            raise errors.SlurmError("squeue names no partition of the job")
        return dataclasses.replace(found, shares=shares).in_kubernetes(self.gpu_resources)

    async def _shares(self, job_id: int) -> tuple[jobs.NodeShare, ...]:
        text = await self._run("scontrol", "--detail", "show", "job", str(job_id))
        found = jobtexts.shown(text, job_id).shares
        if not found:
            raise errors.SlurmError("scontrol shows no allocation for the job")
        return found

    async def failed_launch(self, job_id: int) -> jobs.Job | None:
        """The job, if slurmd could not start it."""
        found = await self.shown(job_id)
        return found if found.reason == LAUNCH_FAILURE else None

    async def shown(self, job_id: int) -> jobs.Job:
        """A job with its files and its end, while slurmctld remembers it."""
        return jobtexts.shown(await self._run("scontrol", "show", "job", str(job_id)), job_id)

    async def shown_jobs(self, name: str) -> tuple[jobs.Job, ...]:
        """The same for 17 or 20_3; for an array's id, all tasks."""
        return tuple(jobtexts.all_shown(await self._run("scontrol", "show", "job", name)))

    async def is_older_than_controller(self, job_id: int) -> bool:
        """Whether this attempt started before slurmctld did."""
        started = jobtexts.seconds((await self._row(job_id, ("StartTime",)))["StartTime"])
        if not started:
            raise errors.SlurmError(f"squeue shows no StartTime of job {job_id}")
        return started < jobtexts.seconds(await self._setting("BOOT_TIME"))

    async def waiting(self, job_id: int) -> jobs.Job | None:
        """A pending job of ours with all that keeps it from starting; None if it is not pending any more."""
        try:
            row = await self._row(job_id, jobtexts.COLUMNS)
            excluded = await self._excluded(job_id)
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError:  # no longer known
            return None
        found = jobtexts.job(row | {jobtexts.EXCLUDED: excluded})
        return found if found.is_pending and found.prepared else None

    async def _excluded(self, job_id: int) -> str:
        text = await self._run("squeue", "--noheader", *_one(job_id), "--format=%A|%x")
        rows = (line.partition("|") for line in text.split("\n"))
        return next((names.strip() for number, _, names in rows if number.strip() == str(job_id)), "")

    async def put_off(self) -> tuple[int, ...]:
        """Pending jobs that penstockd keeps from nodes, or delays."""
        options = ("--all", "--array", f"--states={states.JobState.PENDING}")
        rows = await self._squeue(("JobID", "admin_comment"), *options)
        found = ((row["JobID"], marks.read(row["admin_comment"])) for row in rows)
        return tuple(int(job_id) for job_id, mark in found if mark and (mark.avoids or mark.until))

    async def _named(self, job_id: int) -> str:
        return name_in(await self._row(job_id, NAMING))

    async def _row(self, job_id: int, names: Sequence[str]) -> dict[str, str]:
        """These fields of this one job; an array's id brings all its tasks."""
        rows = await self._squeue(tuple(dict.fromkeys(("JobID", *names))), *_one(job_id))
        own = [row for row in rows if row["JobID"] == str(job_id)]
        if len(own) != 1:
            raise errors.SlurmError(f"squeue shows {len(own)} jobs with the id {job_id}")
        return own[0]

    async def _known(self, names: Sequence[str], *options: str) -> list[dict[str, str]] | None:
        """None if slurmctld knows none of the requested jobs."""
        try:
            return await self._squeue(names, *options)
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError as error:
            if "Invalid job id" in error.message:
                return None
            raise

    async def _squeue(
        self, names: Sequence[str], *options: str, within: float = commands.TIMEOUT
    ) -> list[dict[str, str]]:
        separator = fields.made_up()
        wanted = fields.wanted(names, separator)
        text = await self._run("squeue", "--noheader", *options, wanted, within=within)
        return fields.rows(text, separator, names)

    # -- nodes -----------------------------------------------------------------------------------------------
    async def nodes(self) -> tuple[Node, ...]:
        """Every node, as large as Slurm configures it."""
        text = await self._run("scontrol", "--oneliner", "show", "node")
        lines = (line for line in text.split("\n") if line.startswith("NodeName="))
        return tuple(nodetexts.node(line).in_kubernetes(self.gpu_resources) for line in lines)

    async def targets(self, partition: str) -> tuple[Node, ...]:
        return tuple(node for node in await self.nodes() if partition in node.partitions)

    async def partitions(self) -> tuple[Partition, ...]:
        text = await self._run("scontrol", "--oneliner", "show", "partition")
        lines = (line for line in text.split("\n") if line.startswith("PartitionName="))
        return tuple(map(nodetexts.partition, lines))

    async def partition_names(self, *, within: float) -> tuple[str, ...]:
        """Only the names, including hidden ones."""
        text = await self._run("sinfo", "--noheader", "--all", "--format=%R", within=within)
        return tuple(dict.fromkeys(text.split()))

    async def drained(self, partitions: Collection[str]) -> tuple[Drain, ...]:
        """Drained nodes of these partitions, with the unmodified reason."""
        found = await self._nodes_that_are(NodeState.DRAIN)
        return tuple({drain.node: drain for partition, drain in found if partition in partitions}.values())

    async def given_to_nobody(self) -> dict[str, str]:
        """Nodes on which Slurm starts no job (drained, down or failing), with the reason."""
        found = await self._nodes_that_are(NodeState.DRAIN, NodeState.DOWN, NodeState.FAIL)
        return {drain.node: drain.reason for _, drain in found}

    async def _nodes_that_are(self, *wanted: NodeState) -> list[tuple[str, Drain]]:
        """Pairs of partition and node, with hidden partitions, which sinfo cannot select."""
        asked = (
            f"--states={','.join(wanted).lower()}",
            "--Format=NodeList:|,PartitionName:|,Timestamp:|,Reason:|",
        )
        text = await self._run("sinfo", "--noheader", "--all", "--Node", *asked)
        lines = (line.split("|", 3) for line in text.split("\n"))
        return [
            (words[1].strip(), _drain(words[0].strip(), *words[2:])) for words in lines if len(words) == 4
        ]

    async def _run(self, *argv: str, within: float = commands.TIMEOUT) -> str:
        self.on_call(argv[0])
        return await commands.run(argv, slurm_conf=self.slurm_conf, within=within)


def name_in(row: Mapping[str, str]) -> str:
    """The id, from NAMING, by which commands change this job and no other.

    The last task of an array has the array's own id: by that number commands mean all tasks, and ended ones
    would run again.
    """
    is_task = row["ArrayTaskID"].isdigit()
    return f"{row['ArrayJobID']}_{row['ArrayTaskID']}" if is_task else row["JobID"]


def _one(job_id: int) -> tuple[str, ...]:
    return ("--all", "--states=all", "--array", f"--jobs={job_id}")


def _shares_in(block: str) -> tuple[jobs.NodeShare, ...]:
    """Empty for a job that has lost its nodes between the two calls."""
    try:
        return jobtexts.shown_in(block).shares
    except errors.SlurmError:
        return ()


def _drain(node: str, since: str, reason: str) -> Drain:
    """The reason is free text and may contain bars; sinfo adds one at its end."""
    text = reason.rstrip().removesuffix("|").strip()
    return Drain(node=node, reason=text, since=float(since) if since.strip().isdigit() else 0.0)
