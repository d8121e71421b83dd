"""The wiring: all parts of one dev cluster, and the web server around them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from penstock.devcluster import agent, auth, kinds
from penstock.devcluster.admin import Admin
from penstock.devcluster.app import Application
from penstock.devcluster.collector import Collector
from penstock.devcluster.events import Events
from penstock.devcluster.execs import Execs
from penstock.devcluster.faults import Faults
from penstock.devcluster.handlers import Handlers
from penstock.devcluster.nodes import NodeSpec
from penstock.devcluster.objects import PROTECTED_NAMESPACES, Objects
from penstock.devcluster.scheduler import Scheduler
from penstock.devcluster.store import Store
from penstock.devcluster.streams import Streams

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """All that can be said about a dev cluster."""

    data_dir: Path
    port: int
    tokens: dict[str, auth.Identity]
    nodes: list[NodeSpec] = field(default_factory=list)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    backoff: float = agent.BACKOFF


class _Server(uvicorn.Server):
    """uvicorn without its clock: it waits to be told to stop instead of looking ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stop = asyncio.Event()
        self.ready = asyncio.Event()

    async def main_loop(self) -> None:
        self.ready.set()
        await self.stop.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Cluster:
    """One dev cluster; everything of it lives in one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        registry, faults = kinds.Registry(), Faults()
        self.objects = Objects(Store(), holds_deletion=faults.is_stuck)
        events = Events(self.objects)
        self._agents = agent.Agents(
            self.objects, faults, events, settings.nodes, settings.data_dir, backoff=settings.backoff
        )
        self._collector = Collector(self.objects, registry)
        self._scheduler = Scheduler(self.objects, events)
        self._streams = Streams()
        resources = Handlers(self.objects, self._agents, self._collector, self._streams, faults)
        admin = Admin(self.objects.store, faults, resources)
        execs = Execs(self.objects, self._agents)
        application = Application(registry, resources, admin, execs, auth.Authenticator(settings.tokens))
        self._server = _Server(self._config(application))

    def _config(self, application: Application) -> uvicorn.Config:
        settings = self._settings
        return uvicorn.Config(
            application.asgi(),
            host="127.0.0.1",
            port=settings.port,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            lifespan="off",
            loop="asyncio",
            http="h11",
            ws="wsproto",
            access_log=False,
            log_config=None,
            date_header=False,
            timeout_keep_alive=600,
            timeout_graceful_shutdown=1,
        )

    def stop(self) -> None:
        self._server.stop.set()

    async def ready(self) -> None:
        await self._server.ready.wait()

    async def run(self) -> None:
        """Serve until told to stop; then no process, mount or cgroup is left."""
        for name in (*PROTECTED_NAMESPACES, "kube-public", "kube-node-lease"):
            self.objects.create(kinds.NAMESPACES, "", {"metadata": {"name": name}})
        self._collector.start()
        self._scheduler.start()
        self._agents.start()
        serving = asyncio.create_task(self._server._serve())
        stopped = asyncio.create_task(self._server.stop.wait())
        try:
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._agents.stop()
            self._streams.end()
            self._server.stop.set()
            await serving


async def serve(settings: Settings) -> None:
    """Run a cluster until SIGTERM or SIGINT."""
    cluster = Cluster(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, cluster.stop)
    await cluster.run()
