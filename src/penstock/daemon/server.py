"""penstockd's unix socket: authorization by the peer's uid, and answers. The socket is open to all users."""

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

RELEASE_PATIENCE = 20.0  # seconds after which the Epilog is told to ask again, as a sign of life
MOST_DESCRIBED = 1000  # jobs in one request: other requests wait while they are looked up
LARGEST_ATTACH = 4 * secrets.SECRET_LIMIT  # of a reattaching launcher; the kernel allows 2 MB of variables
FINDINGS = {"armed": RefusalKind.UNSAFE_ENVIRONMENT, "unread": RefusalKind.UNREADABLE_ENVIRONMENT}
"""Refusals by PrologSlurmctld, which has read the job's environment."""


@dataclasses.dataclass
class Server:
    bridge: bridging.Bridge
    hook_uids: frozenset[int]
    recovered: asyncio.Event
    metrics: measuring.Metrics
    counted: limits.ConnectionLimits = dataclasses.field(default_factory=limits.ConnectionLimits)
    bridged_partitions: tuple[str, ...] = ()
    fingerprint: str = ""
    """Of the settings file; a ping's answer shows whether a restart is due."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = connections.Connection(reader, writer)
        connection.parsing = self.counted.parsing[connection.uid]
        try:
            message = await self._request(connection)
            if message is not None:
                await self._dispatch(connection, message)
        except limits.TooMany as error:
            log.warning("%s", error.message)
            await connection.send("wait")
        except (wire.WireError, ValueError) as error:
            log.warning("protocol error from uid %d: %s", connection.uid, error)
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

    async def _request(self, connection: connections.Connection) -> connections.Message | None:
        """The peer's request; None if it does not arrive in time."""

        def announced(size: int) -> None:
            connection.kept.enter_context(self.counted.buffered(connection.uid, size))

        with self.counted.request(connection.uid):
            try:
                return await asyncio.wait_for(connection.receive(announced), limits.REQUEST_SECONDS)
            except TimeoutError:
                log.info("uid %d connected and sent no request", connection.uid)
                return None

    async def _dispatch(self, connection: connections.Connection, message: connections.Message) -> None:
        if message.verb == wellknown.VERB_PING:
            word = "pong" if self.recovered.is_set() and self.bridge.context.pods.fresh else "starting"
            await connection.send(word, self.fingerprint)
        elif message.verb == wellknown.VERB_LAUNCH:
            await self._launch(connection, message)
        elif message.verb == wellknown.VERB_DESCRIBE:
            await self._describe(connection, message)
        elif connection.uid not in self.hook_uids:
            raise wire.WireError(f"{message.verb} is for Slurm's hooks, not for uid {connection.uid}")
        else:
            await self._dispatch_hook(connection, message)

    async def _dispatch_hook(self, connection: connections.Connection, message: connections.Message) -> None:
        if message.verb == wellknown.VERB_METRICS:
            await connection.send(message.verb, self.metrics.page())
        elif message.verb == wellknown.VERB_AUDIT:
            found = queries.audit(self.bridge, self.bridged_partitions)
            await connection.send(message.verb, msgspec.json.encode(found))
        elif not self.recovered.is_set():
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
        """Serve a launcher. It counts as an open request until its job is confirmed: anybody can send a job
        id, and each unknown one costs a query to Slurm.
        """
        job_id = message.number("slurm_job_id")
        with self.counted.early(connection.uid):
            await self.recovered.wait()
        crashpoints.reach("launch.asked")
        with self.counted.request(connection.uid):
            allocation = await self.bridge.launching.allocation_for(job_id, connection.uid)
        attaching = message.one("attach") == b"1"
        if attaching and message.size > LARGEST_ATTACH:
            raise wire.WireError(f"{message.size} bytes are more than a job can be launched with")
        connection.kept.close()
        with self.counted.session(job_id):
            await self.bridge.sessions.serve(
                launchers.SocketLauncher(connection),
                allocation,
                launchers.request_of(message),
                attaching=attaching,
                sent={1: message.number("skip"), 2: message.number("skip_error")},
                commands=frozenset(launchers.commands_of(message)),
            )

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
        with self.counted.request(connection.uid):
            found = queries.describe(self.bridge, wanted, uid=connection.uid, sees_all=sees_all)
            if wanted:
                found = await queries.with_warnings(self.bridge, found)
            answer: tuple[bytes, ...] = (msgspec.json.encode(found), *((b"all",) if sees_all else ()))
            try:
                await asyncio.wait_for(connection.send("jobs", *answer), limits.REQUEST_SECONDS)
            except TimeoutError:
                log.info("uid %d does not read the answer", connection.uid)
                connection.abort()


def _findings(message: connections.Message) -> tuple[Refusal, ...]:
    for name, kind in FINDINGS.items():
        found = ", ".join(value.decode("utf-8", "replace") for value in message.all(name))
        if found:
            return (Refusal(kind=kind, detail=found),)
    return ()
