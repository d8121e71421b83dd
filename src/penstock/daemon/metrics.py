"""Metrics for Prometheus: admissions, refusals, ends, latencies, API requests and Slurm commands."""

from __future__ import annotations

import asyncio
import logging

import prometheus_client as prometheus

from penstock.model.reasons import Outcome, Refusal

log = logging.getLogger(__name__)

_LATENCIES = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


class Metrics:
    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        self._admitted = self._counter("penstock_admitted", "Jobs that were let through to start.")
        self._refused = self._counter(
            "penstock_refused", "Starts that were put off, by why.", "kind", "resource"
        )
        self._ended = self._counter("penstock_ended", "Jobs that ended, by how.", "how", "kind")
        self._start_seconds = self._histogram(
            "penstock_gang_start_seconds", "From launch to all pods placed."
        )
        self._release_seconds = self._histogram(
            "penstock_release_seconds", "From Epilog's question to pods gone."
        )
        self.requests = self._counter(
            "penstock_api_requests", "Requests to the Kubernetes API.", "verb", "code"
        )
        self.relists = self._counter("penstock_watch_restarts", "Times a kind was listed again.", "resource")
        self.commands = self._counter("penstock_slurm_commands", "Slurm commands that were run.", "program")

    def _counter(self, name: str, text: str, *labels: str) -> prometheus.Counter:
        return prometheus.Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> prometheus.Histogram:
        return prometheus.Histogram(name, text, buckets=_LATENCIES, registry=self.registry)

    def page(self) -> bytes:
        """All metrics in Prometheus' text format."""
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
    """Answer any GET on this loopback port with the metrics page."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                await reader.readuntil(b"\r\n\r\n")
            body = metrics.page()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {prometheus.CONTENT_TYPE_LATEST}\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("metrics: %s", error)
        finally:
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", port) as server:
        await server.serve_forever()
