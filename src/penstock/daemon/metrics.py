"""Figures for Prometheus: what was admitted and refused, how long things take, how the API behaves."""

from __future__ import annotations

import asyncio
import logging

import prometheus_client as prometheus

from penstock.model.reasons import Outcome, Refusal

log = logging.getLogger(__name__)

_LATENCIES = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


class Metrics:
    """One registry for one penstockd."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        kept = self.registry
        self._admitted = prometheus.Counter(
            "penstock_admitted", "Jobs that were let through to start.", registry=kept
        )
        self._refused = prometheus.Counter(
            "penstock_refused", "Starts that were put off, by why.", ["kind", "resource"], registry=kept
        )
        self._ended = prometheus.Counter(
            "penstock_ended", "Jobs that ended, by how.", ["how", "kind"], registry=kept
        )
        self._start_seconds = prometheus.Histogram(
            "penstock_gang_start_seconds",
            "From launch to all pods placed.",
            buckets=_LATENCIES,
            registry=kept,
        )
        self._release_seconds = prometheus.Histogram(
            "penstock_release_seconds",
            "From Epilog's question to pods gone.",
            buckets=_LATENCIES,
            registry=kept,
        )
        self.requests = prometheus.Counter(
            "penstock_api_requests", "Requests to the Kubernetes API.", ["verb", "code"], registry=kept
        )
        self.relists = prometheus.Counter(
            "penstock_watch_restarts", "Times a kind was listed again.", ["resource"], registry=kept
        )

        self.commands = prometheus.Counter(
            "penstock_slurm_commands", "Slurm commands that were run.", ["program"], registry=kept
        )

    def page(self) -> bytes:
        """All figures, as Prometheus reads them."""
        return bytes(prometheus.generate_latest(self.registry))

    def admitted(self) -> None:
        self._admitted.inc()

    def refused(self, refusal: Refusal) -> None:
        self._refused.labels(refusal.kind, refusal.resource).inc()

    def started(self, seconds: float) -> None:
        self._start_seconds.observe(seconds)

    def ended(self, outcome: Outcome) -> None:
        how = "requeued" if outcome.requeue else "failed" if outcome.exit_code else "completed"
        self._ended.labels(how, outcome.kind).inc()

    def released(self, seconds: float) -> None:
        self._release_seconds.observe(seconds)


async def serve(metrics: Metrics, port: int) -> None:
    """GET anything on this port of loopback answers the metrics page."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                await reader.readuntil(b"\r\n\r\n")
            body = metrics.page()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {prometheus.CONTENT_TYPE_LATEST}\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            await writer.drain()
        except (
            TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            ConnectionError,
        ) as error:
            log.debug("metrics: %s", error)
        finally:
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", port) as server:
        await server.serve_forever()
