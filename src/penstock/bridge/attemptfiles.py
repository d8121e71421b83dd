"""Records of attempts for the collector.

`<state>/running/JOB-RESTART.json` is written before the first pod, so that a restarted penstockd finds the
attempts that it had begun. When the last pod is gone, the record is completed and renamed into
`<state>/ended/`, where the collector takes it: a record is in exactly one of the two. Write errors stop no
job: the sweeper tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from penstock import crashpoints, errors, joblog, wellknown
from penstock.bridge.context import Context
from penstock.kube import podview, reflectors, types
from penstock.model import attempts as model
from penstock.model import jobs, launches, numbers, sentences
from penstock.model.reasons import Outcome
from penstock.nas import atomic
from penstock.render import pods as rendering
from penstock.render import workdirs

log = logging.getLogger(__name__)

COLLECT_SECONDS = 10.0
LOOK_SECONDS = 0.2


class AttemptRecords:
    """Attempts in the store and on disk; without a state directory none are kept."""

    def __init__(self, context: Context, *, state_dir: str = "", results: str = "") -> None:
        self._context, self._settings = context, context.settings
        self._store, self._now = context.store, context.wall_clock
        self._state = Path(state_dir) if state_dir else None
        shared = results and rendering.is_shared(results.encode(), self._settings)
        self._outputs = f"{results}/{wellknown.OUTPUTS_FOLDER}" if shared else ""
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        if self._state is not None:
            self._load(self._state)

    def _load(self, state: Path) -> None:
        try:
            for folder in ("running", "ended"):
                (state / folder).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise errors.UsageError(
                f"state_dir: {error.filename}: {error.strerror}",
                hint="It must exist, with folders `running` and `ended` owned by penstockd's user.",
            ) from error
        for path in sorted((state / "running").glob("[0-9]*.json")):
            try:
                attempt = msgspec.json.decode(path.read_bytes(), type=model.Attempt)
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
                log.error("%s: cannot be read; its job gets no results: %s", path, error)
                continue
            self._put(attempt)

    def _put(self, attempt: model.Attempt) -> model.Attempt:
        self._store.job(attempt.job_id).attempts[attempt.restart] = attempt
        return attempt

    def find(self, identity: jobs.JobIdentity) -> model.Attempt | None:
        job = self._store.find(identity.job_id)
        return job.attempts.get(identity.restart) if job else None

    # -- an attempt's life -------------------------------------------------------------------------

    async def wait_for_collector(self, identity: jobs.JobIdentity) -> None:
        """Let the collector take the output of earlier attempts first: Slurm truncates the file."""
        if self._state is None:
            return
        names = (model.record_name(identity.job_id, earlier) for earlier in range(identity.restart))
        paths = [self._state / "ended" / name for name in names]
        time = self._context.time
        deadline = time.now() + COLLECT_SECONDS
        while any(path.exists() for path in paths) and time.now() < deadline:
            await time.sleep(LOOK_SECONDS)

    async def begin(self, allocation: jobs.Allocation, request: launches.LaunchRequest) -> str:
        """Record the attempt before its first pod; returns the job's output folder, or "".

        An attempt that was begun before a restart of penstockd keeps its folder.
        """
        if self._state is None:
            return ""
        attempt = self.find(allocation.identity)
        if attempt is None:
            attempt = self._put(self._new(allocation, request))
            await self._write(attempt)
        return attempt.output_dir

    def _new(self, allocation: jobs.Allocation, request: launches.LaunchRequest) -> model.Attempt:
        attempt = _of_allocation(allocation, launched=self._now())
        workdir = workdirs.workdir_of(request, self._settings.shared_mounts)
        is_shared = rendering.is_shared(workdir, self._settings)
        left = request.everybodys_outputs if is_shared else ()
        uncollected = self._state is not None and not (self._state / model.COLLECTOR_MARK).exists()
        promised = self._outputs and not uncollected and not request.pod.own_entrypoint
        folder = f"{self._outputs}/{attempt.job_id}-{attempt.restart}-{attempt.token}" if promised else ""
        return msgspec.structs.replace(
            attempt,
            image=rendering.image_of(request, self._settings, allocation.partition),
            workdir=workdir,
            lost_workdir=workdirs.lost_workdir(request, self._settings.shared_mounts),
            workdir_is_shared=is_shared,
            stdout=request.stdout,
            stderr=request.stderr,
            outputs=request.filled_in(pattern for pattern in request.pod.outputs if pattern not in left),
            outputs_left=left,
            output_dir=folder,
            uncollected=uncollected,
            own_entrypoint=request.pod.own_entrypoint,
        )

    def add_unlaunched(self, allocation: jobs.Allocation, failed: jobs.Job, outcome: Outcome) -> None:
        """Keep an attempt that slurmd could not start; `close` writes it to disk."""
        if self._state is None:
            return
        attempt = msgspec.structs.replace(
            _of_allocation(allocation, launched=failed.started),
            workdir=failed.workdir.encode(),
            stdout=failed.stdout.encode(),
            stderr=failed.stderr.encode(),
            unlaunched=True,
            end=self._end(outcome),
        )
        self._put(attempt)

    def _end(self, outcome: Outcome) -> model.End:
        return model.End(
            at=self._now(),
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            kind=outcome.kind,
            reason=sentences.outcome(outcome),
            requeue=outcome.requeue,
        )

    async def ended(self, identity: jobs.JobIdentity, outcome: Outcome, gang: Sequence[types.Pod]) -> None:
        """Add the outcome; it is written to disk at once only if it could not be read off the pods later."""
        attempt = self.find(identity)
        if attempt is None:
            return
        end = self._end(outcome)
        self._put(msgspec.structs.replace(attempt, end=end))
        self.update_pods(gang)
        stay = bool(gang) and not any(pod.metadata.deletion_timestamp for pod in gang)
        if outcome.exit_code or end.reason or not stay:
            await self._write(attempt)

    async def untold(self, identity: jobs.JobIdentity) -> None:
        """Mark the end's reason as not accepted by slurmctld."""
        attempt = self.find(identity)
        if attempt is not None and attempt.end is not None:
            end = msgspec.structs.replace(attempt.end, untold=True)
            await self._write(self._put(msgspec.structs.replace(attempt, end=end)))

    def end_of(self, identity: jobs.JobIdentity) -> Outcome | None:
        """The recorded end, for a launcher that was not told before the pods were gone."""
        attempt = self.find(identity)
        if attempt is None or attempt.end is None:
            return None
        end = attempt.end
        return Outcome(
            kind=end.kind,
            exit_code=end.exit_code,
            signal=end.signal,
            requeue=end.requeue,
            recorded=end.reason,
        )

    def update_pods(self, pods: Iterable[types.Pod]) -> None:
        """Replace what the attempts' records have of these pods."""
        for pod in pods:
            job_id = podview.job_id(pod)
            restart = numbers.natural(pod.metadata.labels.get(wellknown.LABEL_RESTART, ""))
            job = self._store.find(job_id) if job_id else None
            attempt = job.attempts.get(restart) if job and restart is not None else None
            if attempt is not None:
                facts = facts_of(pod)
                others = (one for one in attempt.pods if one.name != facts.name)
                merged = tuple(sorted((*others, facts), key=lambda one: one.rank))
                self._put(msgspec.structs.replace(attempt, pods=merged))

    @contextlib.contextmanager
    def watching(self, job_id: int) -> Iterator[None]:
        """Record the last states of the job's pods while they are being removed."""
        pods = self._context.pods
        with contextlib.ExitStack() as stack:
            keys = [reflectors.key_of(pod.metadata) for pod in pods.by(podview.BY_JOB, job_id)]
            watched = [stack.enter_context(pods.subscribe(key)) for key in keys]
            try:
                yield
            finally:
                for changes in watched:
                    self.update_pods(change.obj for change in changes.so_far())

    async def close(self, identity: jobs.JobIdentity) -> None:
        """Hand the attempt over to the collector; its last pod is gone."""
        attempt = self.find(identity)
        if attempt is None:
            return
        if not attempt.closed:
            attempt = self._put(msgspec.structs.replace(attempt, closed=self._now()))
        if await self._write(attempt, ended=True):
            self._store.job(identity.job_id).attempts.pop(identity.restart, None)

    def under_way(self) -> tuple[jobs.JobIdentity, ...]:
        """Attempts that have not been handed over to the collector."""
        return tuple(
            jobs.JobIdentity(job_id=one.job_id, restart=one.restart, uid=one.uid)
            for job in self._store.all()
            for one in job.attempts.values()
        )

    # -- disk --------------------------------------------------------------------------------------

    async def _write(self, attempt: model.Attempt, *, ended: bool = False) -> bool:
        """Write the attempt as the store has it now, one write at a time. Returns False on an error."""
        assert self._state is not None  # noqa: S101  # without one no attempt is ever under way
        path = self._state / "running" / attempt.name
        lock = self._locks.setdefault(attempt.name, asyncio.Lock())
        async with lock:
            latest = self._store.job(attempt.job_id).attempts.get(attempt.restart)
            if latest is None:  # handed over meanwhile
                return True
            try:
                await asyncio.to_thread(_write_file, path, msgspec.json.encode(latest), ended=ended)
            except OSError as error:
                joblog.of(log, attempt.job_id).error("%s: cannot be written yet: %s", path, error)
                return False
        return True


def _write_file(path: Path, content: bytes, *, ended: bool) -> None:
    atomic.write(path, content, mode=0o600)
    if ended:
        crashpoints.reach("release.written")
        path.replace(path.parent.parent / "ended" / path.name)


def _of_allocation(allocation: jobs.Allocation, *, launched: float) -> model.Attempt:
    identity = allocation.identity
    shares = ((share.node, share.amount) for share in allocation.shares)
    return model.Attempt(
        job_id=identity.job_id,
        restart=identity.restart,
        uid=identity.uid,
        token=secrets.token_hex(16),
        launched=launched,
        partition=allocation.partition,
        qos=allocation.qos,
        submission=allocation.submission,
        shown_id=allocation.shown_id,
        shares=tuple(
            model.Share(node=node, millicpus=amount.millicpus, memory=amount.memory, gpus=amount.all_gpus)
            for node, amount in shares
        ),
    )


def facts_of(pod: types.Pod) -> model.PodFacts:
    status = next(
        (one for one in pod.status.container_statuses if one.name == wellknown.CONTAINER_NAME),
        types.ContainerStatus(),
    )
    running, end = status.state.running, status.state.terminated
    rank = pod.metadata.labels.get(wellknown.LABEL_RANK, "0")
    return model.PodFacts(
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        rank=numbers.natural(rank) or 0,
        node=pod.spec.node_name,
        image=pod.spec.containers[0].image if pod.spec.containers else "",
        image_id=status.image_id,
        started=(end.started_at if end else running.started_at if running else None) or "",
        ended=(end.finished_at if end else None) or "",
        exit_code=end.exit_code if end else None,
        reason=(end.reason if end else "") or pod.status.reason,
        message=end.message if end else "",
    )
