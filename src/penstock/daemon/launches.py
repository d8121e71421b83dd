"""The conversation with a launcher: make or find the job's pods, pass output and signals, tell the end.

API trouble while launching is not told to the launcher as an end: it is tried again for as long as Slurm lets
the job live.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import signal
from collections.abc import Awaitable, Callable

from penstock import clock, crashpoints, errors
from penstock.bridge import bridge as bridging
from penstock.bridge import gang, outcomes
from penstock.daemon import connections, outputs
from penstock.daemon import metrics as measuring
from penstock.kube import types
from penstock.model import audits, jobs, launches
from penstock.model.jobspec import PodSpec
from penstock.render import pods as rendering
from penstock.sbatch import pods as pods_of_scripts

log = logging.getLogger(__name__)

LAST_OUTPUT_SECONDS = 60.0  # how long the rest of a log may take to arrive after the container's end
UNDER_WAY_SECONDS = 10.0  # the same for output that is fetched: the agent does not end before it is
FORBIDDEN_SECONDS = 30.0  # an API server that has just started forbids everything; for longer it is meant
SLURM_SECONDS = 600.0  # how long a word for slurmctld is kept while it is away; it knows of no end meanwhile
REFUSED = 1  # exit code of a job that Kubernetes did not take; the reason is in its output and comment


def request_of(message: connections.Message, pod: PodSpec | None = None) -> launches.LaunchRequest:
    """What the launcher sent, as data; the script's directives, unless others are given."""
    script = message.one("script")
    return launches.LaunchRequest(
        pod=pods_of_scripts.pod_of(script) if pod is None else pod,
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
    signals: asyncio.Queue[tuple[signal.Signals, bool]] = dataclasses.field(default_factory=asyncio.Queue)

    async def serve(self, message: connections.Message) -> None:
        """Until the job has ended or the launcher has gone."""
        crashpoints.reach("launch.asked")
        allocation = await self.bridge.allocation_for(message.number("slurm_job_id"), self.connection.uid)
        with self.bridge.attending(allocation.identity.job_id):
            await self._converse(message, allocation)

    async def _converse(self, message: connections.Message, allocation: jobs.Allocation) -> None:
        try:
            request = request_of(message)
        except errors.UsageError as error:
            await self.bridge.attempts.begin(allocation, request_of(message, PodSpec()))
            await self._tell_end(allocation, outcomes.Outcome(REFUSED, f"not started: {error.message}"))
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
            self.bridge.ledger.hold(allocation)
        self.bridge.timeline.note(job_id, "attached" if attaching else "launched")
        try:
            self.gang = await self._pods(message, allocation, request)
        except gang.GangRefused as error:
            refused = outcomes.Outcome(REFUSED, f"not started: {error.message}", requeue=error.requeue)
            await self._tell_end(allocation, refused)
            return
        if not self.gang:
            seen = self.bridge.attempts.end_of(allocation.identity)
            await self._tell_end(allocation, seen or outcomes.VANISHED)
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
        outcome = await self._until_end(request, self.output)
        await self._tell_end(allocation, outcome)

    async def _pods(
        self, message: connections.Message, allocation: jobs.Allocation, request: launches.LaunchRequest
    ) -> tuple[types.Pod, ...]:
        delay, patience = 0.2, self.clock.now() + FORBIDDEN_SECONDS
        while True:
            try:
                if self.announced or message.one("attach") == b"1":
                    return await self.bridge.attach(allocation, request)
                return await self.bridge.launch(allocation, request, self._announce)
            except (errors.KubeUnavailable, errors.KubeNotAllowed) as error:
                if isinstance(error, errors.KubeNotAllowed) and self.clock.now() > patience:
                    raise gang.GangRefused(error.message) from error
                log.warning("job %d waits for the API: %s", allocation.identity.job_id, error.message)
                await self.clock.sleep(max(delay, error.retry_after))
                delay = min(delay * 2, 5.0)

    async def _announce(self) -> None:
        """From here on the launcher only ever attaches: the script may run."""
        self.announced = True
        await self.connection.send("started")

    async def _until_end(self, request: launches.LaunchRequest, output: outputs.Output) -> outcomes.Outcome:
        streams = rendering.fetched(request, self.bridge.settings)
        if not streams and not request.pod.own_entrypoint:
            return await self.bridge.end_of(self.gang)
        way = output.fetch(streams) if streams else output.follow_log()
        patience = UNDER_WAY_SECONDS if streams else LAST_OUTPUT_SECONDS
        streaming = asyncio.create_task(way)
        try:
            outcome = await self.bridge.end_of(self.gang)
            output.ended.set()
            await asyncio.wait((streaming,), timeout=patience)
            return outcome
        finally:
            streaming.cancel()
            await asyncio.gather(streaming, return_exceptions=True)

    async def _until_peer_leaves(self) -> None:
        while (message := await self.connection.receive()) is not None:
            if message.verb == "synced" and self.output:
                self.output.synced.set()
            if message.verb != "signal":
                continue
            number = signal.Signals(message.number("number"))
            crashpoints.reach("signal.received")
            if self.over:  # Slurm ends what it has requeued
                await self.connection.send("signal", str(int(number)))
            else:
                self.signals.put_nowait((number, message.one("everyone") == b"1"))

    async def _deliver_signals(self) -> None:
        """One after the other, once there is somebody to deliver them to; the launcher is told of each."""
        await self.placed.wait()
        while True:
            number, everyone = await self.signals.get()
            while not await self._passed_on(number, everyone=everyone):
                await self.clock.sleep(random.uniform(0.5, 1.0))  # noqa: S311  # jitter, not a secret
            await self.connection.send("delivered")

    async def _passed_on(self, number: signal.Signals, *, everyone: bool) -> bool:
        """Into the pod; if that cannot be done, a signal that ends the job ends the pod. False: try again."""
        try:
            await self.bridge.signal(self.gang[0], number, everyone=everyone, agent=self.agent)
            crashpoints.reach("signal.delivered")
        except errors.KubeError as error:
            log.warning("cannot pass %s on: %s", number.name, error.message)
            if number == signal.SIGTERM:
                return await self._stopped()
            return not isinstance(error, errors.KubeUnavailable)
        return True

    async def _stopped(self) -> bool:
        """Whether the pod's end was asked for; as long as the API is away, nobody can."""
        self.stopped = True
        try:
            await self.bridge.stop(self.gang[0])
        except errors.KubeError as error:
            log.warning("cannot stop the pod: %s", error.message)
            self.stopped = False
            return not isinstance(error, errors.KubeUnavailable)
        return True

    async def _tell_end(self, allocation: jobs.Allocation, outcome: outcomes.Outcome) -> None:
        crashpoints.reach("end.seen")
        reason = "" if self.stopped and outcome.reason == outcomes.VANISHED.reason else outcome.reason
        self.bridge.timeline.note(
            allocation.identity.job_id, "ended", reason or f"exit code {outcome.exit_code}"
        )
        self.metrics.ended.labels(
            "requeued" if outcome.requeue else "failed" if outcome.exit_code else "completed"
        ).inc()
        await self.bridge.note_end(
            allocation.identity, dataclasses.replace(outcome, reason=reason), self.gang
        )
        crashpoints.reach("end.noted")
        if reason:
            await self.connection.send("note", reason)
            await self._comment(allocation.identity.job_id, reason)
            crashpoints.reach("end.commented")
        if outcome.requeue and await self._requeued(allocation.identity.job_id):
            await asyncio.Event().wait()  # the launcher must not ask again: it stays until Slurm ends it
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

    async def _comment(self, job_id: int, text: str) -> None:
        try:
            await self._when_slurm_is_there(lambda: self.bridge.slurm.set_comment(job_id, text))
        except errors.SlurmError as error:
            log.warning("cannot comment job %d: %s", job_id, error.message)

    async def _when_slurm_is_there(self, call: Callable[[], Awaitable[None]]) -> None:
        """Try again for as long as slurmctld is away, within reason."""
        deadline = self.clock.now() + SLURM_SECONDS
        while True:
            try:
                return await call()
            except errors.SlurmUnavailable:
                if self.clock.now() > deadline:
                    raise
                await self.clock.sleep(random.uniform(1.0, 2.0))  # noqa: S311  # jitter, not a secret
