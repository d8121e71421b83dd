"""penstockd's unix socket: who may ask what, and the answer. The socket is open to all; the kernel tells who
asks.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time as unix_time
from collections.abc import Callable

import msgspec

from penstock import clock, crashpoints, errors, wellknown
from penstock.bridge import bridge as bridging
from penstock.bridge import draining
from penstock.daemon import connections, describing, doors, launches
from penstock.daemon import metrics as measuring
from penstock.hooks import wire
from penstock.model import jobs, numbers, views
from penstock.render import pods

log = logging.getLogger(__name__)

RELEASE_PATIENCE = 20.0  # seconds after which the Epilog is told to ask again, so that it knows we are alive
MOST_DESCRIBED = 1000  # jobs in one question: everybody else waits while they are looked up
LARGEST_ATTACH = 4 * pods.SECRET_LIMIT  # what a launcher repeats; the kernel gives it 2 MB of variables
CLOCK_SLACK = 0.05  # slurmctld may run on another host
ARMED = "ended: its environment would run code on the Slurm node ({}): submit it again without that"
UNREAD = "waits for the administrator: the environment that Slurm keeps of it cannot be read ({})"


@dataclasses.dataclass
class Server:
    """Answers hooks and launchers."""

    bridge: bridging.Bridge
    hook_uids: frozenset[int]
    recovered: asyncio.Event
    drainer: draining.Drainer
    metrics: measuring.Metrics
    clock: clock.Clock
    doors: doors.Doors = dataclasses.field(default_factory=doors.Doors)
    bridged_partitions: tuple[str, ...] = ()
    fingerprint: str = ""
    """Of the settings file, for whoever asks whether a restart is due."""
    later: dict[int, asyncio.Task[None]] = dataclasses.field(default_factory=dict)
    """What still follows a refusal, by job."""
    wall_clock: Callable[[], float] = unix_time.time

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection from its first message to its end."""
        connection = connections.Connection(reader, writer)
        connection.parsing = self.doors.parsing[connection.uid]
        try:
            message = await self._question(connection)
            if message is not None:
                await self._dispatch(connection, message)
        except doors.TooMany as error:
            log.warning("%s", error.message)
            await connection.send("wait")
        except (wire.WireError, ValueError) as error:
            log.warning("uid %d sent nonsense: %s", connection.uid, error)
            await connection.send("error", str(error))
        except bridging.NotYours as error:
            log.warning("refused: %s", error.message)
            await connection.send("note", error.message)
            await connection.send("exit", "126")
        except errors.PenstockError as error:
            log.warning("uid %d: %s", connection.uid, error.message)
            await connection.send("wait")
        finally:
            connection.kept.close()
            await connection.close()

    async def _question(self, connection: connections.Connection) -> connections.Message | None:
        """What the peer wants; None when it does not say so in time."""

        def announced(size: int) -> None:
            connection.kept.enter_context(self.doors.keeping(connection.uid, size))

        with self.doors.asking(connection.uid):
            try:
                return await asyncio.wait_for(connection.receive(announced), doors.SECONDS_TO_ASK)
            except TimeoutError:
                log.info("uid %d was connected and did not ask anything", connection.uid)
                return None

    async def _dispatch(self, connection: connections.Connection, message: connections.Message) -> None:
        if message.verb == wellknown.VERB_PING:
            word = "pong" if self.recovered.is_set() and self.bridge.pods.fresh else "starting"
            await connection.send(word, self.fingerprint)
            return
        if message.verb == wellknown.VERB_LAUNCH:
            await self._launch(connection, message)
            return
        if message.verb == wellknown.VERB_DESCRIBE:
            await self._describe(connection, message)
            return
        if connection.uid not in self.hook_uids:
            raise wire.WireError(f"{message.verb} is for Slurm's hooks, not for uid {connection.uid}")
        if message.verb in (wellknown.VERB_AUDIT, wellknown.VERB_METRICS):
            await connection.send(message.verb, self._report(message.verb))
            return
        if not self.recovered.is_set():
            await connection.send("wait")
        elif message.verb == wellknown.VERB_ADMIT:
            await self._admit(connection, message)
        elif message.verb == wellknown.VERB_RELEASE:
            await self._release(connection, message)
        elif message.verb == wellknown.VERB_ABANDON:
            await self.drainer.abandon(message.number("job"), message.one("node").decode("ascii", "replace"))
            await connection.send("drained")
        else:
            raise wire.WireError(f"unknown verb {message.verb!r}")

    async def _launch(self, connection: connections.Connection, message: connections.Message) -> None:
        """Until it is known to be a job's launcher it counts: anybody can name a job, and Slurm is asked for
        each that we do not know.
        """
        job_id = message.number("slurm_job_id")
        with self.doors.early(connection.uid):
            await self.recovered.wait()
        crashpoints.reach("launch.asked")
        with self.doors.asking(connection.uid):
            allocation = await self.bridge.allocation_for(job_id, connection.uid)
        if message.all("attach") == (b"1",) and message.size > LARGEST_ATTACH:
            raise wire.WireError(f"{message.size} bytes are more than the job can have been launched with")
        connection.kept.close()
        with self.doors.session(job_id):
            session = launches.LaunchSession(connection, self.bridge, self.metrics, self.clock)
            await session.serve(message, allocation)

    def _report(self, verb: str) -> bytes:
        if verb == wellknown.VERB_METRICS:
            return self.metrics.page()
        return msgspec.json.encode(describing.audit(self.bridge, self.bridged_partitions))

    async def _admit(self, connection: connections.Connection, message: connections.Message) -> None:
        identity = jobs.JobIdentity(
            job_id=message.number("job"), restart=message.number("restart"), uid=message.number("uid")
        )
        later_second = self.clock.now() + 1 - self.wall_clock() % 1 + CLOCK_SLACK
        crashpoints.reach("admit.asked")
        await self._leave_refusal(identity.job_id)
        self.bridge.timeline.own(identity.job_id, identity.uid)
        reasons = _unfit(message) or await self.bridge.admit(identity)
        if not reasons:
            crashpoints.reach("admit.held")
            self.bridge.timeline.note(identity.job_id, "admitted")
            self.metrics.admitted.inc()
            await connection.send("yes")
            crashpoints.reach("admit.answered")
            return
        seconds = self.bridge.backoff.refused(identity.job_id)
        text = "; ".join(reasons)
        self.bridge.timeline.note(identity.job_id, views.REFUSED, text)
        self.metrics.refusal(reasons[0])
        log.info("job %d %s", identity.job_id, text)
        await self._wait_for_the(later_second)
        await connection.send("no", text)
        crashpoints.reach("admit.refused")
        await self._leave_refusal(identity.job_id)
        never = bool(message.all("armed"))
        later = self._end(identity.job_id, text) if never else self._put_off(identity.job_id, text, seconds)
        task = self.later[identity.job_id] = asyncio.create_task(later)
        task.add_done_callback(lambda _: self.later.pop(identity.job_id, None))

    async def _leave_refusal(self, job_id: int) -> None:
        """What follows the job's last refusal and is not done yet holds no more: Slurm tries it again.

        slurmctld may have been away; what it hears now would be said of a job that runs.
        """
        task = self.later.get(job_id)
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _wait_for_the(self, later_second: float) -> None:
        """Slurm tells records of a job apart by whole seconds. 24.11 makes one too many when it sends a job
        back; of the second in which the job was submitted that would be the newest, and pending for ever.
        """
        left = later_second - self.clock.now()
        if left > 0:
            await self.clock.sleep(left)

    async def _put_off(self, job_id: int, text: str, seconds: int) -> None:
        """Say why the job waits; send it to other nodes, or let it wait longer after repeated refusals."""
        count = self.bridge.backoff.count(job_id)
        try:
            await self.bridge.slurm.say_why_it_waits(job_id, text)
            crashpoints.reach("admit.commented")
            await self._when_pending(job_id)
            goes = await self.bridge.steering.put_off(job_id, seconds, tries=count)
            if count > 1 and not goes:
                again = f" (refused {count} times, next try in {seconds} s)"
                await self.bridge.slurm.say_why_it_waits(job_id, text + again)
        except errors.SlurmError as error:
            log.warning("job %d could not be put off: %s", job_id, error.message)

    async def _end(self, job_id: int, text: str) -> None:
        """Such a job will never start. Slurm sends a job whose PrologSlurmctld says no back to the queue,
        also one that was cancelled meanwhile: so it is cancelled there. If not, it asks again, and so do we.
        """
        try:
            await self.bridge.slurm.set_comment(job_id, text)
        except errors.SlurmError as error:
            log.warning("job %d is not told why it ends: %s", job_id, error.message)
        try:
            await self._when_pending(job_id)
            await self.bridge.slurm.cancel(job_id)
        except errors.SlurmError as error:
            log.warning("job %d could not be ended: %s", job_id, error.message)

    async def _when_pending(self, job_id: int) -> None:
        """Slurm takes a start time only once the job is back in the queue."""
        for _ in range(20):
            job = await self.bridge.slurm.live_job(job_id)
            if job is None or job.state == "PENDING":
                return
            await self.clock.sleep(0.5)

    async def _release(self, connection: connections.Connection, message: connections.Message) -> None:
        job_id, node = message.number("job"), message.one("node").decode("ascii", "replace")
        began = self.clock.now()
        try:
            await asyncio.wait_for(self.bridge.release(job_id, node), RELEASE_PATIENCE)
        except TimeoutError:
            await connection.send("wait")
            return
        self.metrics.release_seconds.observe(self.clock.now() - began)
        self.bridge.timeline.note(job_id, "released", node)
        crashpoints.reach("release.done")
        await connection.send("gone")
        crashpoints.reach("release.answered")

    async def _describe(self, connection: connections.Connection, message: connections.Message) -> None:
        asked = (numbers.natural(text) for text in message.all("job"))
        wanted = tuple(job_id for job_id in asked if job_id is not None)
        if len(wanted) > MOST_DESCRIBED:
            raise wire.WireError(f"{len(wanted)} jobs at once are more than {MOST_DESCRIBED}")
        sees_all = connection.uid in self.hook_uids
        with self.doors.asking(connection.uid):
            found = describing.describe(self.bridge, wanted, uid=connection.uid, sees_all=sees_all)
            if wanted:
                found = await describing.with_warnings(self.bridge, found)
            answer: tuple[bytes, ...] = (msgspec.json.encode(found), *((b"all",) if sees_all else ()))
            try:
                await asyncio.wait_for(connection.send("jobs", *answer), doors.SECONDS_TO_ASK)
            except TimeoutError:
                log.info("uid %d asked and does not read the answer", connection.uid)
                connection.abort()


def _unfit(message: connections.Message) -> tuple[str, ...]:
    """Why PrologSlurmctld, which has looked at the job's environment, would not let it start anywhere."""
    for name, text in (("armed", ARMED), ("unread", UNREAD)):
        found = ", ".join(value.decode("utf-8", "replace") for value in message.all(name))
        if found:
            return (text.format(found),)
    return ()
