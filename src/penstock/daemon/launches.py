"""The conversation with a launcher: make or find the job's pods, pass output and signals, tell the end.

API trouble while launching is not told to the launcher as an end: it is tried again for as long as Slurm lets
the job live.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import random
import signal
from collections.abc import Awaitable, Callable

from penstock import clock, crashpoints, errors
from penstock.bridge import bridge as bridging
from penstock.bridge import gang, outcomes
from penstock.daemon import connections, outputs
from penstock.daemon import metrics as measuring
from penstock.kube import reading, reflecting, types
from penstock.model import audits, jobs, launches
from penstock.model.jobspec import PodSpec
from penstock.render import folders
from penstock.render import pods as rendering
from penstock.sbatch import images, placement
from penstock.sbatch import pods as pods_of_scripts

log = logging.getLogger(__name__)

LAST_OUTPUT_SECONDS = 60.0  # how long the rest of a log may take to arrive after the container's end
UNDER_WAY_SECONDS = 10.0  # the same for output that is fetched: the agent does not end before it is
FORBIDDEN_SECONDS = 30.0  # an API server that has just started forbids everything; for longer it is meant
SLURM_SECONDS = 600.0  # how long a word for slurmctld is kept while it is away; it knows of no end meanwhile
NUMBER_SECONDS = 10.0  # the same while a job's record has no number, which may be for ever
END_SECONDS = 60.0  # between two looks at a requeued job whose launcher Slurm should have ended
ROUNDS_TO_END = 2  # so many looks in a row find it running before it is requeued again
LARGEST_WORD = 4096  # bytes of what a launcher says after its question: a signal, or that all is written
MOST_SIGNALS = 100  # that wait for delivery, each for itself; of more, one of a kind
REFUSED = 1  # exit code of a job that Kubernetes did not take; the reason is in its output and comment
Signal = tuple[signal.Signals, bool]
"""And whether it is for all processes of the job."""


def request_of(message: connections.Message, pod: PodSpec) -> launches.LaunchRequest:
    """What the launcher sent, as data."""
    script = message.one("script")
    return launches.LaunchRequest(
        pod=pod,
        interpreter=message.one("interpreter"),
        script=script,
        arguments=message.all("argument"),
        environment=message.all("environment"),
        workdir=message.one("workdir"),
        stdout=message.one("stdout"),
        stderr=message.one("stderr"),
        stdin=next(iter(message.all("stdin")), b"/dev/null"),
        umask=next(iter(message.all("umask")), b""),
    )


def allowed_request(
    message: connections.Message, partition: str, settings: rendering.PodSettings
) -> launches.LaunchRequest:
    """The same with the script's directives; UsageError when they are wrong or the site does not allow them.

    Not of a job that runs already: what the site forbids since then holds for later jobs.
    """
    script, runs = message.one("script"), message.one("attach") == b"1"
    pod = pods_of_scripts.pod_of(script, forbidden=() if runs else settings.forbidden_directives)
    request = request_of(message, pod)
    too_far = placement.refusals(
        pod,
        tolerations=settings.allowed_tolerations.get(partition),
        labels=settings.allowed_node_labels.get(partition),
        trusted=settings.is_trusted(partition),
    )
    for _, complaint, hint in () if runs else too_far:
        raise errors.UsageError(complaint, hint=hint)
    image = rendering.image_of(request, settings, partition)
    if image and not runs and not images.is_allowed(image, settings.allowed_images):
        allowed = ", ".join(settings.allowed_images)
        name = images.full_name(image)
        raise errors.UsageError(f"the image {name} is not allowed at this site (allowed: {allowed})")
    return request


def _elsewhere(request: launches.LaunchRequest, settings: rendering.PodSettings) -> str:
    """That the script does not run where it was submitted, for people; nothing when it does."""
    lost = folders.lost_workdir(request, settings.shared_mounts).decode(errors="replace")
    shown = "".join(character if character.isprintable() else "?" for character in lost)
    return f"runs in {folders.TMP} of its pod: pods do not see {shown}" if shown else ""


@dataclasses.dataclass
class LaunchSession:
    """One launcher's connection."""

    connection: connections.Connection
    bridge: bridging.Bridge
    metrics: measuring.Metrics
    clock: clock.Clock
    stopped: bool = False
    over: bool = False
    announced: bool = False
    """Whether the launcher knows that the script may run: from then on there is only this gang."""
    agent: bool = True
    gang: tuple[types.Pod, ...] = ()
    output: outputs.Output | None = None
    placed: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    signals: asyncio.Queue[Signal] = dataclasses.field(default_factory=asyncio.Queue)

    async def serve(self, message: connections.Message, allocation: jobs.Allocation) -> None:
        """Until the job has ended or the launcher has gone."""
        with self.bridge.attending(allocation.identity.job_id):
            await self._converse(message, allocation)

    async def _converse(self, message: connections.Message, allocation: jobs.Allocation) -> None:
        try:
            request = allowed_request(message, allocation.partition, self.bridge.settings)
        except errors.UsageError as error:
            await self.bridge.attempts.begin(allocation, request_of(message, PodSpec()))
            remedy = f" ({error.hint})" if error.hint else ""
            refused = outcomes.Outcome(REFUSED, f"not started: {error.message}{remedy}")
            await self._tell_end(allocation, refused)
            return
        listening = asyncio.create_task(self._until_peer_leaves())
        running = asyncio.create_task(self._run(message, allocation, request))
        delivering = asyncio.create_task(self._deliver_signals())
        try:
            await asyncio.wait((running, listening), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            for task in (running, listening, delivering):
                task.cancel()
            await asyncio.gather(running, listening, delivering, return_exceptions=True)

    async def _run(
        self, message: connections.Message, allocation: jobs.Allocation, request: launches.LaunchRequest
    ) -> None:
        job_id, began = allocation.identity.job_id, self.clock.now()
        attaching = message.one("attach") == b"1"
        if attaching:
            self.announced = True
            self.bridge.ledger.hold(allocation)
        where = _elsewhere(request, self.bridge.settings)
        self.bridge.timeline.note(job_id, "attached" if attaching else "launched", where)
        try:
            self.gang = await self._pods(message, allocation, request)
        except gang.GangRefused as error:
            refused = outcomes.Outcome(REFUSED, f"not started: {error.message}", requeue=error.requeue)
            await self._tell_end(allocation, refused)
            return
        if not self.gang:
            await self._tell_end(allocation, await self.bridge.loss_of(allocation))
            return
        if attaching:
            await self._announce()
        else:
            self.metrics.start_seconds.observe(self.clock.now() - began)
            self.bridge.timeline.note(job_id, "placed", ", ".join(share.node for share in allocation.shares))
        self.agent = not request.pod.own_entrypoint
        self.placed.set()
        crashpoints.reach("launch.told")
        sent = {1: message.number("skip"), 2: message.number("skip_error")}
        self.output = outputs.Output(self.connection, self.bridge, self.clock, self.gang[0], sent)
        outcome = await self._until_end(job_id, request, self.output)
        await self._tell_end(allocation, outcome)

    async def _pods(
        self, message: connections.Message, allocation: jobs.Allocation, request: launches.LaunchRequest
    ) -> tuple[types.Pod, ...]:
        delay, forbidden = 0.2, math.inf
        while True:
            try:
                if self.announced:
                    return await self.bridge.attach(allocation, request)
                return await self.bridge.launch(allocation, request, lambda: self._begin(allocation))
            except (errors.KubeUnavailable, errors.KubeNotAllowed) as error:
                if isinstance(error, errors.KubeUnavailable):
                    forbidden = math.inf  # as far as anybody knows
                else:
                    forbidden = min(forbidden, self.clock.now())
                if self.clock.now() > forbidden + FORBIDDEN_SECONDS:
                    raise gang.GangRefused(error.message) from error
                log.warning("job %d waits for the API: %s", allocation.identity.job_id, error.message)
                await self.clock.sleep(max(delay, error.retry_after))
                delay = min(delay * 2, 5.0)

    async def _begin(self, allocation: jobs.Allocation) -> None:
        """From here on the owner's word about running twice holds. Until now the job only waited."""
        if not await self.bridge.may_run_twice(allocation):
            await self._set_requeue(allocation.identity.job_id, allowed=False)
        await self._announce()

    async def _set_requeue(self, job_id: int, *, allowed: bool) -> None:
        try:
            await self._when_slurm_is_there(lambda: self.bridge.slurm.set_requeue(job_id, allowed=allowed))
        except errors.SlurmError as error:
            log.warning("job %d: whether it runs twice cannot be said: %s", job_id, error.message)

    async def _announce(self) -> None:
        """From here on the launcher only ever attaches: the script may run."""
        self.announced = True
        await self.connection.send("started")

    async def _until_end(
        self, job_id: int, request: launches.LaunchRequest, output: outputs.Output
    ) -> outcomes.Outcome:
        streams = rendering.fetched(request, self.bridge.settings)
        if not streams and not request.pod.own_entrypoint:
            return await self.bridge.end_of(job_id, self.gang)
        way = output.fetch(streams) if streams else output.follow_log()
        patience = UNDER_WAY_SECONDS if streams else LAST_OUTPUT_SECONDS
        streaming = asyncio.create_task(way)
        try:
            outcome = await self.bridge.end_of(job_id, self.gang)
            output.ended.set()
            _, late = await asyncio.wait((streaming,), timeout=patience)
            if late:
                await self.connection.send("note", outputs.INCOMPLETE)
            return outcome
        finally:
            streaming.cancel()
            await asyncio.gather(streaming, return_exceptions=True)

    async def _until_peer_leaves(self) -> None:
        while (message := await self.connection.receive(most=LARGEST_WORD)) is not None:
            if message.verb == "synced" and self.output:
                self.output.synced.set()
            if message.verb != "signal":
                continue
            number = signal.Signals(message.number("number"))
            crashpoints.reach("signal.received")
            wanted = number, message.one("everyone") == b"1"
            if self.over:  # Slurm ends what it has requeued
                await self.connection.send("signal", str(int(number)))
            elif self.signals.qsize() >= MOST_SIGNALS and self._waits(wanted):
                await self.connection.send("delivered")  # by the one that waits, as a kernel would do it
            else:
                self.signals.put_nowait(wanted)

    def _waits(self, wanted: Signal) -> bool:
        """Whether one like it is among those that are not delivered yet."""
        waiting = [self.signals.get_nowait() for _ in range(self.signals.qsize())]
        for each in waiting:
            self.signals.put_nowait(each)
        return wanted in waiting

    async def _deliver_signals(self) -> None:
        """One after the other, once there is somebody to deliver them to; the launcher is told of each."""
        await self.placed.wait()
        while True:
            number, everyone = await self.signals.get()
            patience = self.clock.now() + FORBIDDEN_SECONDS
            while not await self._passed_on(number, everyone=everyone, patience=patience):
                await self.clock.sleep(random.uniform(0.5, 1.0))  # noqa: S311  # jitter, not a secret
                if self._is_starting():
                    number, everyone = self._most_urgent((number, everyone))
            await self.connection.send("delivered")

    def _most_urgent(self, first: Signal) -> Signal:
        """A SIGTERM that has come meanwhile, for it is the job's end; else all in the order they came."""
        waiting = [first]
        while not self.signals.empty():
            waiting.append(self.signals.get_nowait())
        chosen, *others = sorted(waiting, key=lambda each: each[0] != signal.SIGTERM)
        for each in others:
            self.signals.put_nowait(each)
        return chosen

    async def _passed_on(self, number: signal.Signals, *, everyone: bool, patience: float) -> bool:
        """Into the pod; if that cannot be done, a signal that ends the job ends the pod. False: try again.

        A right that is missing may be there again soon, until `patience` is over.
        """
        try:
            await self.bridge.signal(self.gang[0], number, everyone=everyone, agent=self.agent)
            crashpoints.reach("signal.delivered")
        except errors.KubeError as error:
            log.warning("cannot pass %s on: %s", number.name, error.message)
            if number == signal.SIGTERM:
                return await self._stopped()
            forbidden = isinstance(error, errors.KubeNotAllowed) and self.clock.now() < patience
            passing = forbidden or isinstance(error, errors.KubeUnavailable)
            return not passing and not self._is_starting()
        return True

    def _is_starting(self) -> bool:
        """Whether the script has not begun, as far as we see: its image may take minutes to come."""
        meta = self.gang[0].metadata
        pod = self.bridge.pods.objects.get(reflecting.key_of(meta))
        return pod is not None and pod.metadata.uid == meta.uid and not reading.has_started(pod)

    async def _stopped(self) -> bool:
        """Whether the pod's end was asked for; as long as the API is away or forbids it, nobody can."""
        self.stopped = True
        try:
            await self.bridge.stop(self.gang[0])
        except errors.KubeError as error:
            log.warning("cannot stop the pod: %s", error.message)
            self.stopped = False
            return not isinstance(error, errors.KubeUnavailable | errors.KubeNotAllowed)
        return True

    async def _tell_end(self, allocation: jobs.Allocation, outcome: outcomes.Outcome) -> None:
        crashpoints.reach("end.seen")
        outcome = outcome.as_asked() if self.stopped else outcome
        reason = outcome.reason
        self.bridge.timeline.note(
            allocation.identity.job_id, "ended", reason or f"exit code {outcome.exit_code}"
        )
        self.metrics.ended.labels(
            "requeued" if outcome.requeue else "failed" if outcome.exit_code else "completed"
        ).inc()
        await self.bridge.note_end(allocation.identity, outcome, self.gang)
        crashpoints.reach("end.noted")
        if reason:
            await self.connection.send("note", reason)
            await self._comment(allocation.identity, reason)
            crashpoints.reach("end.commented")
        if outcome.requeue and not (self.announced and outcome.began) and allocation.requeue is not True:
            await self._set_requeue(allocation.identity.job_id, allowed=True)
        while outcome.requeue and await self._requeued(allocation.identity.job_id):
            await self._until_forgotten(allocation.identity)
        self.bridge.timeline.ended(
            audits.End(
                job_id=allocation.identity.job_id,
                restart=allocation.identity.restart,
                exit_code=outcome.exit_code,
                signal=outcome.signal,
                reason=reason,
            )
        )
        if outcome.signal:
            await self.connection.send("signal", str(outcome.signal))
        else:
            await self.connection.send("exit", str(outcome.exit_code))
        crashpoints.reach("end.told")

    async def _requeued(self, job_id: int) -> bool:
        """Whether Slurm runs the job again; the launcher then ends by Slurm's hand."""
        self.over = True
        try:
            await self._when_slurm_is_there(lambda: self.bridge.slurm.requeue(job_id))
        except errors.SlurmError as error:
            self.over = False
            log.info("job %d ends instead of being requeued: %s", job_id, error.message)
            return False
        crashpoints.reach("end.requeued")
        return True

    async def _until_forgotten(self, identity: jobs.JobIdentity) -> None:
        """The launcher must not ask again: it stays until Slurm ends it. Only a slurmctld that went down with
        its memory of the requeue, or whose successor never had it, still has this very attempt running.
        """
        runs = 0
        while runs < ROUNDS_TO_END:
            await self.clock.sleep(END_SECONDS)
            try:
                job = await self.bridge.slurm.live_job(identity.job_id)
            except errors.SlurmError as error:
                log.info("job %d was requeued, and nobody knows more: %s", identity.job_id, error.message)
                continue
            is_same = job is not None and job.identity == identity and job.state == "RUNNING"
            runs = runs + 1 if is_same else 0
        log.warning("job %d is requeued again: Slurm has forgotten that it was", identity.job_id)

    async def _comment(self, identity: jobs.JobIdentity, text: str) -> None:
        """What slurmctld does not take is left to the collector, who puts it into the accounting."""
        try:
            await self._when_slurm_is_there(lambda: self.bridge.slurm.set_comment(identity.job_id, text))
        except errors.SlurmError as error:
            log.warning("cannot comment job %d: %s", identity.job_id, error.message)
            await self.bridge.attempts.untold(identity)

    async def _when_slurm_is_there(self, call: Callable[[], Awaitable[None]]) -> None:
        """Try again for as long as slurmctld is away, within reason."""
        began = self.clock.now()
        while True:
            try:
                return await call()
            except errors.SlurmUnavailable as error:
                patience = NUMBER_SECONDS if isinstance(error, errors.SlurmNotYet) else SLURM_SECONDS
                if self.clock.now() > began + patience:
                    raise
                await self.clock.sleep(random.uniform(1.0, 2.0))  # noqa: S311  # jitter, not a secret
