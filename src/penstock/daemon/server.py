"""penstockd's unix socket: who may ask what, and the answer. The socket is open to all; the kernel tells who
asks.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging

import msgspec

from penstock import crashpoints, errors, wellknown
from penstock.bridge import bridge as bridging
from penstock.bridge.launch import NotYours
from penstock.daemon import connections, launchers, limits, queries
from penstock.daemon import metrics as measuring
from penstock.hooks import wire
from penstock.model import jobs, numbers, sentences
from penstock.model.reasons import Refusal, RefusalKind
from penstock.render import secrets

log = logging.getLogger(__name__)

RELEASE_PATIENCE = 20.0  # seconds after which the Epilog is told to ask again, so that it knows we are alive
MOST_DESCRIBED = 1000  # jobs in one question: everybody else waits while they are looked up
LARGEST_ATTACH = 4 * secrets.SECRET_LIMIT  # what a launcher repeats; the kernel gives it 2 MB of variables
FINDINGS = {"armed": RefusalKind.UNSAFE_ENVIRONMENT, "unread": RefusalKind.UNREADABLE_ENVIRONMENT}
"""What PrologSlurmctld, which has looked at the job's environment, may have against it."""


@dataclasses.dataclass
class Server:
    """Answers hooks and launchers."""

    bridge: bridging.Bridge
    hook_uids: frozenset[int]
    recovered: asyncio.Event
    metrics: measuring.Metrics
    doors: limits.Doors = dataclasses.field(default_factory=limits.Doors)
    bridged_partitions: tuple[str, ...] = ()
    fingerprint: str = ""
    """Of the settings file, for whoever asks whether a restart is due."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection from its first message to its end."""
        connection = connections.Connection(reader, writer)
        connection.parsing = self.doors.parsing[connection.uid]
        try:
            message = await self._question(connection)
            if message is not None:
                await self._dispatch(connection, message)
        except limits.TooMany as error:
            log.warning("%s", error.message)
            await connection.send("wait")
        except (wire.WireError, ValueError) as error:
            log.warning("uid %d sent nonsense: %s", connection.uid, error)
            await connection.send("error", str(error))
        except NotYours as error:
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
                return await asyncio.wait_for(connection.receive(announced), limits.SECONDS_TO_ASK)
            except TimeoutError:
                log.info("uid %d was connected and did not ask anything", connection.uid)
                return None

    async def _dispatch(self, connection: connections.Connection, message: connections.Message) -> None:
        if message.verb == wellknown.VERB_PING:
            word = "pong" if self.recovered.is_set() and self.bridge.context.pods.fresh else "starting"
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
            node = message.one("node").decode("ascii", "replace")
            await self.bridge.drainer.abandon(message.number("job"), node)
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
            allocation = await self.bridge.launching.allocation_for(job_id, connection.uid)
        attaching = launchers.is_attaching(message)
        if attaching and message.size > LARGEST_ATTACH:
            raise wire.WireError(f"{message.size} bytes are more than the job can have been launched with")
        connection.kept.close()
        with self.doors.session(job_id):
            await self.bridge.sessions.serve(
                launchers.SocketLauncher(connection),
                allocation,
                launchers.request_of(message),
                attaching=attaching,
                sent=launchers.bytes_sent(message),
            )

    def _report(self, verb: str) -> bytes:
        if verb == wellknown.VERB_METRICS:
            return self.metrics.page()
        return msgspec.json.encode(queries.audit(self.bridge, self.bridged_partitions))

    async def _admit(self, connection: connections.Connection, message: connections.Message) -> None:
        identity = jobs.JobIdentity(
            job_id=message.number("job"), restart=message.number("restart"), uid=message.number("uid")
        )
        crashpoints.reach("admit.asked")
        refusals = await self.bridge.admission.decide(identity, found=_findings(message))
        if not refusals:
            await connection.send("yes")
            crashpoints.reach("admit.answered")
            return
        await connection.send("no", sentences.refusals(refusals))
        crashpoints.reach("admit.refused")
        await self.bridge.admission.follow_up(identity.job_id, refusals)

    async def _release(self, connection: connections.Connection, message: connections.Message) -> None:
        job_id, node = message.number("job"), message.one("node").decode("ascii", "replace")
        try:
            await asyncio.wait_for(self.bridge.releasing.release(job_id, node), RELEASE_PATIENCE)
        except TimeoutError:
            await connection.send("wait")
            return
        await connection.send("gone")
        crashpoints.reach("release.answered")

    async def _describe(self, connection: connections.Connection, message: connections.Message) -> None:
        asked = (numbers.natural(text) for text in message.all("job"))
        wanted = tuple(job_id for job_id in asked if job_id is not None)
        if len(wanted) > MOST_DESCRIBED:
            raise wire.WireError(f"{len(wanted)} jobs at once are more than {MOST_DESCRIBED}")
        sees_all = connection.uid in self.hook_uids
        with self.doors.asking(connection.uid):
            found = queries.describe(self.bridge, wanted, uid=connection.uid, sees_all=sees_all)
            if wanted:
                found = await queries.with_warnings(self.bridge, found)
            answer: tuple[bytes, ...] = (msgspec.json.encode(found), *((b"all",) if sees_all else ()))
            try:
                await asyncio.wait_for(connection.send("jobs", *answer), limits.SECONDS_TO_ASK)
            except TimeoutError:
                log.info("uid %d asked and does not read the answer", connection.uid)
                connection.abort()


def _findings(message: connections.Message) -> tuple[Refusal, ...]:
    """Why the job would not be let start anywhere."""
    for name, kind in FINDINGS.items():
        found = ", ".join(value.decode("utf-8", "replace") for value in message.all(name))
        if found:
            return (Refusal(kind=kind, detail=found),)
    return ()
