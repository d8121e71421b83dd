"""The control socket: switches faults on and off, one JSON line in, one out; reachable by root only."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from penstock import errors
from penstock_lab.faultproxy import faultrules
from penstock_lab.faultproxy import proxy as proxying

SECONDS = 10.0


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A control request: replaces the rules, seeds the random generator, or only asks for the counters."""

    rules: tuple[faultrules.Rule, ...] | None = None
    seed: int | None = None


class Figures(msgspec.Struct, frozen=True):
    """Counters since the proxy started."""

    requests: dict[str, int] = {}
    """By verb and resource, such as "list pods"."""
    struck: dict[str, int] = {}
    error: str = ""


@dataclasses.dataclass(frozen=True)
class Server:
    """Answers control requests."""

    proxy: proxying.Proxy

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request and its answer."""
        try:
            async with asyncio.timeout(SECONDS):
                line = await reader.readline()
            writer.write(msgspec.json.encode(self._obey(line)) + b"\n")
            await writer.drain()
        except (TimeoutError, ConnectionError):
            return
        finally:
            writer.close()

    def _obey(self, line: bytes) -> Figures:
        try:
            order = msgspec.json.decode(line, type=Order)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return Figures(error=str(error))
        faults = self.proxy.faults
        if order.seed is not None:
            faults.chance.seed(order.seed)
        if order.rules is not None:
            self.proxy.set(order.rules)
        return Figures(requests=dict(faults.requests), struck=dict(faults.struck))


@dataclasses.dataclass(frozen=True)
class Control:
    """The client side, used by tests."""

    path: Path

    def set(self, *wanted: faultrules.Rule) -> None:
        """Replace all rules."""
        self._order(Order(rules=wanted))

    def clear(self) -> None:
        self._order(Order(rules=()))

    def seed(self, number: int) -> None:
        self._order(Order(seed=number))

    def figures(self) -> Figures:
        return self._order(Order())

    @contextmanager
    def during(self, *wanted: faultrules.Rule) -> Iterator[None]:
        """These faults within the block, none afterwards."""
        self.set(*wanted)
        try:
            yield
        finally:
            self.clear()

    def _order(self, order: Order) -> Figures:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(SECONDS)
            try:
                client.connect(str(self.path))
                client.sendall(msgspec.json.encode(order) + b"\n")
                with client.makefile("rb") as answers:
                    found = msgspec.json.decode(answers.readline(), type=Figures)
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise errors.LabError(f"the fault proxy does not answer on {self.path}: {error}") from error
        if found.error:
            raise errors.UsageError(f"the fault proxy refuses the order: {found.error}")
        return found
