"""penstockd's unix socket: who may ask what, and the answer. The socket is open to all; the kernel tells who
asks.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging

from penstock import clock, errors, wellknown
from penstock.bridge import bridge as bridging
from penstock.daemon import connections, launches
from penstock.hooks import wire
from penstock.model import jobs

log = logging.getLogger(__name__)

RELEASE_PATIENCE = 20.0  # seconds after which the Epilog is told to ask again, so that it knows we are alive


@dataclasses.dataclass
class Server:
    """Answers hooks and launchers."""

    bridge: bridging.Bridge
    hook_uids: frozenset[int]
    recovered: asyncio.Event
    clock: clock.Clock

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection from its first message to its end."""
        connection = connections.Connection(reader, writer)
        try:
            message = await connection.receive()
            if message is not None:
                await self._dispatch(connection, message)
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
            await connection.close()

    async def _dispatch(self, connection: connections.Connection, message: connections.Message) -> None:
        if message.verb == wellknown.VERB_PING:
            await connection.send(
                "pong" if self.recovered.is_set() and self.bridge.pods.fresh else "starting"
            )
            return
        if message.verb == wellknown.VERB_LAUNCH:
            await self.recovered.wait()
            await launches.LaunchSession(connection, self.bridge, self.clock).serve(message)
            return
        if connection.uid not in self.hook_uids:
            raise wire.WireError(f"{message.verb} is for Slurm's hooks, not for uid {connection.uid}")
        if not self.recovered.is_set():
            await connection.send("wait")
        elif message.verb == wellknown.VERB_ADMIT:
            await self._admit(connection, message)
        elif message.verb == wellknown.VERB_RELEASE:
            await self._release(connection, message)
        else:
            raise wire.WireError(f"unknown verb {message.verb!r}")

    async def _admit(self, connection: connections.Connection, message: connections.Message) -> None:
        identity = jobs.JobIdentity(
            job_id=message.number("job"), restart=message.number("restart"), uid=message.number("uid")
        )
        reasons = await self.bridge.admit(identity)
        if not reasons:
            await connection.send("yes")
            return
        log.info("job %d %s", identity.job_id, "; ".join(reasons))
        await connection.send("no", "; ".join(reasons))
        await self.bridge.slurm.set_comment(identity.job_id, "; ".join(reasons))

    async def _release(self, connection: connections.Connection, message: connections.Message) -> None:
        job_id, node = message.number("job"), message.one("node").decode("ascii", "replace")
        try:
            await asyncio.wait_for(self.bridge.release(job_id, node), RELEASE_PATIENCE)
        except TimeoutError:
            await connection.send("wait")
            return
        await connection.send("gone")
