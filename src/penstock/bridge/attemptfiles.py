"""Writes down each attempt of a job, for the collector: before its first pod, and when its last pod is gone.

`<state>/running/JOB-RESTART.json` is written before anything is made, so that a penstockd that was killed
finds what it had begun; with the last pod gone it is completed and moved to `<state>/ended/`, where the
collector takes it from. One rename, one truth: an attempt is in one of the two or has been collected. A disk
that takes nothing stops no job: what could not be written is kept and tried again by the sweeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """Attempts under way, in the store and on the disk; without a state directory nothing is kept."""

    def __init__(self, context: Context, *, state_dir: str = "", results: str = "") -> None:
        self._context, self._settings = context, context.settings
        self._store, self._now = context.store, context.wall_clock
        self._state = Path(state_dir) if state_dir else None
        shared = results and rendering.is_shared(results.encode(), self._settings)
        self._outputs = f"{results}/{wellknown.OUTPUTS_FOLDER}" if shared else ""
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        if self._state is not None:
            self._recall(self._state)

    def _recall(self, state: Path) -> None:
        try:
            for folder in ("running", "ended"):
                (state / folder).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise errors.UsageError(
                f"state_dir: {error.filename}: {error.strerror}",
                hint="It must be there, with folders `running` and `ended` of penstockd's user.",
            ) from error
        for path in sorted((state / "running").glob("[0-9]*.json")):
            try:
                attempt = msgspec.json.decode(path.read_bytes(), type=model.Attempt)
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
                log.error("%s cannot be read, its job will have no results: %s", path, error)
                continue
            self._put(attempt)

    def _put(self, attempt: model.Attempt) -> model.Attempt:
        self._store.job(attempt.job_id).attempts[attempt.restart] = attempt
        return attempt

    def find(self, identity: jobs.JobIdentity) -> model.Attempt | None:
        """The attempt, if it is under way."""
        job = self._store.find(identity.job_id)
        return job.attempts.get(identity.restart) if job else None

    # -- an attempt's life -------------------------------------------------------------------------

    async def wait_for_collector(self, identity: jobs.JobIdentity) -> None:
        """Give it a moment to take what earlier attempts printed: Slurm empties the file for the next one."""
        if self._state is None:
            return
        names = (model.record_name(identity.job_id, earlier) for earlier in range(identity.restart))
        paths = [self._state / "ended" / name for name in names]
        time = self._context.time
        deadline = time.now() + COLLECT_SECONDS
        while any(path.exists() for path in paths) and time.now() < deadline:
            await time.sleep(LOOK_SECONDS)

    async def begin(self, allocation: jobs.Allocation, request: launches.LaunchRequest) -> str:
        """Before the first pod is made; the folder that the job may put its outputs into, or nothing.

        An attempt that was begun before, by a penstockd that was killed since, keeps its folder.
        """
        if self._state is None:
            return ""
        attempt = self.find(allocation.identity)
        if attempt is None:
            attempt = self._put(self._described(allocation, request))
            await self._write(attempt)
        return attempt.output_dir

    def _described(self, allocation: jobs.Allocation, request: launches.LaunchRequest) -> model.Attempt:
        identity, token = allocation.identity, secrets.token_hex(16)
        workdir = workdirs.workdir_of(request, self._settings.shared_mounts)
        is_shared = rendering.is_shared(workdir, self._settings)
        left = request.everybodys_outputs if is_shared else ()
        uncollected = self._state is not None and not (self._state / model.COLLECTOR_MARK).exists()
        promised = self._outputs and not uncollected and not request.pod.own_entrypoint
        folder = f"{self._outputs}/{identity.job_id}-{identity.restart}-{token}" if promised else ""
        return model.Attempt(
            job_id=identity.job_id,
            restart=identity.restart,
            uid=identity.uid,
            token=token,
            launched=self._now(),
            partition=allocation.partition,
            qos=allocation.qos,
            submission=allocation.submission,
            shown_id=allocation.shown_id,
            shares=tuple(map(_share, allocation.shares)),
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

    def never_began(self, allocation: jobs.Allocation, failed: jobs.Job, outcome: Outcome) -> None:
        """The job's end, and all there is of it; closing it writes it down."""
        if self._state is None:
            return
        identity = allocation.identity
        attempt = model.Attempt(
            job_id=identity.job_id,
            restart=identity.restart,
            uid=identity.uid,
            token=secrets.token_hex(16),
            launched=failed.started,
            partition=allocation.partition,
            qos=allocation.qos,
            submission=allocation.submission,
            shown_id=allocation.shown_id,
            shares=tuple(map(_share, allocation.shares)),
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
        """The launcher is being told this; only what pods could not tell later goes to the disk at once."""
        attempt = self.find(identity)
        if attempt is None:
            return
        end = self._end(outcome)
        self._put(msgspec.structs.replace(attempt, end=end))
        self.saw(gang)
        stay = bool(gang) and not any(pod.metadata.deletion_timestamp for pod in gang)
        if outcome.exit_code or end.reason or not stay:
            await self._write(self._store.job(identity.job_id).attempts[identity.restart])

    async def untold(self, identity: jobs.JobIdentity) -> None:
        """slurmctld did not take the reason of the end that was noted."""
        attempt = self.find(identity)
        if attempt is not None and attempt.end is not None:
            end = msgspec.structs.replace(attempt.end, untold=True)
            await self._write(self._put(msgspec.structs.replace(attempt, end=end)))

    def end_of(self, identity: jobs.JobIdentity) -> Outcome | None:
        """The end that was seen of an attempt whose launcher was not told: its pods may be gone by now."""
        attempt = self.find(identity)
        end = attempt.end if attempt else None
        if end is None:
            return None
        return Outcome(
            kind=end.kind,
            exit_code=end.exit_code,
            signal=end.signal,
            requeue=end.requeue,
            recorded=end.reason,
        )

    def saw(self, pods: Iterable[types.Pod]) -> None:
        """Pods as they are now; what is older is forgotten."""
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
        """See the job's pods to their last state while they are being removed."""
        pods = self._context.pods
        with contextlib.ExitStack() as stack:
            keys = [reflectors.key_of(pod.metadata) for pod in pods.by(podview.BY_JOB, job_id)]
            watched = [stack.enter_context(pods.subscribe(key)) for key in keys]
            try:
                yield
            finally:
                for changes in watched:
                    self.saw(change.obj for change in changes.so_far())

    async def close(self, identity: jobs.JobIdentity) -> None:
        """The last pod is gone: the collector's turn."""
        attempt = self.find(identity)
        if attempt is None:
            return
        if not attempt.closed:
            attempt = self._put(msgspec.structs.replace(attempt, closed=self._now()))
        if await self._write(attempt, then=self._hand_over):
            self._store.job(identity.job_id).attempts.pop(identity.restart, None)

    def under_way(self) -> tuple[jobs.JobIdentity, ...]:
        """Attempts that have begun and not been handed over."""
        return tuple(
            jobs.JobIdentity(job_id=one.job_id, restart=one.restart, uid=one.uid)
            for job in self._store.all()
            for one in job.attempts.values()
        )

    # -- disk --------------------------------------------------------------------------------------

    async def _write(self, attempt: model.Attempt, then: Callable[[Path], None] = lambda path: None) -> bool:
        """Whether the disk has it; one write after the other."""
        assert self._state is not None  # noqa: S101  # without one no attempt is ever under way
        path = self._state / "running" / attempt.name
        lock = self._locks.setdefault(attempt.name, asyncio.Lock())
        async with lock:
            latest = self._store.job(attempt.job_id).attempts.get(attempt.restart)
            if latest is None:  # handed over meanwhile
                return True
            try:
                await asyncio.to_thread(_put, path, msgspec.json.encode(latest), then)
            except OSError as error:
                joblog.of(log, attempt.job_id).error("%s cannot be written yet: %s", path, error)
                return False
        return True

    def _hand_over(self, path: Path) -> None:
        crashpoints.reach("release.written")
        path.replace(path.parent.parent / "ended" / path.name)


def _put(path: Path, content: bytes, then: Callable[[Path], None]) -> None:
    atomic.write(path, content, mode=0o600)
    then(path)


def _share(share: jobs.NodeShare) -> model.Share:
    amount = share.amount
    return model.Share(
        node=share.node, millicpus=amount.millicpus, memory=amount.memory, gpus=amount.all_gpus
    )


def facts_of(pod: types.Pod) -> model.PodFacts:
    """What is worth keeping of a pod."""
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
