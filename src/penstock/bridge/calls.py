"""Slurm's commands that a job's pod calls: planned here, run by the job's launcher, answered to the pod.

The pod keeps a call until it has its end, the launcher keeps what the pod has not confirmed, and each says it
again when a connection broke: so a command runs once, and all that it prints arrives once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import signal
from collections import deque
from collections.abc import Awaitable, Callable

from penstock import errors
from penstock.bridge import protocols
from penstock.bridge.container import Container
from penstock.bridge.context import Context
from penstock.bridge.follower import Follower
from penstock.bridge.launch import Launch
from penstock.bridge.podstream import VERSION, BadFrame, Frame, PodStream
from penstock.calls import commands, outcomes, requests
from penstock.model import podcommands

log = logging.getLogger(__name__)

UNASKED_SECONDS = 5.0  # until the pod of a script that names no command of Slurm's is asked for calls
MOST_CALLS = 64  # of a job at once; more wait in the pod
MOST_INPUT = 4 * 1024 * 1024  # bytes of a file for a command, as Slurm limits scripts
SIGNALS = ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "CONT", "ALRM")
STDERR = 2
LONGEST_REASON = 200  # bytes of a pod's words about a file
TOO_LARGE = outcomes.Unreadable(b"File too large")
OLD_LAUNCHER = "the job was started by an older release, which has no Slurm commands in pods"


@dataclasses.dataclass
class _Call:
    """One call, from its request until the pod has its end."""

    key: str
    is_running: bool = False
    """The launcher has it."""
    answer: outcomes.Answer | None = None
    """Said by us instead of the launcher."""
    files: dict[bytes, bytes | outcomes.Unreadable] = dataclasses.field(default_factory=dict)
    path: bytes = b""
    wanted: asyncio.Future[bytes | outcomes.Unreadable] | None = None
    """The content of the file at `path`."""
    input: bytearray = dataclasses.field(default_factory=bytearray)
    planning: asyncio.Task[None] | None = None


class Calls:
    """The calls of one job, while its launcher is connected; `known` are those that the launcher has."""

    def __init__(self, context: Context, follower: Follower, launch: Launch, known: frozenset[str]) -> None:
        self._context, self._follower, self._launch = context, follower, launch
        self._launcher = launch.launcher
        self._calls = {key: _Call(key, is_running=True) for key in known}
        self._later: deque[str] = deque()
        self._announced: set[str] = set()
        self._stream: PodStream | None = None
        self._on: dict[str, Callable[[list[str], bytes], Awaitable[None]]] = {
            "hello": self._on_hello,
            "call": self._on_call,
            "ready": self._on_ready,
            "took": self._on_took,
            "done": self._on_end,
            "gone": self._on_end,
            "signal": self._on_signal,
            "in": self._on_input,
            "eof": self._on_eof,
            "file": self._on_file,
            "nofile": self._on_no_file,
        }

    async def serve(self) -> None:
        """Serve calls until cancelled."""
        pod = self._launch.gang[0]
        if await self._follower.started(pod) is not None:
            return
        if not podcommands.are_called_in(self._launch.request.script) and not self._calls:
            await self._context.time.sleep(UNASKED_SECONDS)
        self._stream = PodStream(Container(self._context.kube, pod), self._context.time, self._on_frame)
        try:
            await self._stream.run()
        finally:
            for call in self._calls.values():
                if call.planning:
                    call.planning.cancel()

    def _send(self, *words: str | int, body: bytes = b"") -> None:
        if self._stream is not None:
            self._stream.send(*words, body=body)

    # -- the launcher's messages -----------------------------------------------------------------------

    def printed(self, message: protocols.Printed) -> None:
        self._send("print", message.key, message.stream, message.offset, body=message.data)

    def ended(self, message: protocols.Ended) -> None:
        self._send("end", message.key, message.how, message.number)

    # -- the pod's frames --------------------------------------------------------------------------------

    async def _on_frame(self, frame: Frame) -> None:
        """Unknown frames are of a later release, or written by the job's own processes."""
        verb, *words = frame.words or ("",)
        on = self._on.get(verb)
        try:
            if on is not None:
                await on(words, frame.body)
        except (IndexError, ValueError) as error:
            raise BadFrame(f"a pod sent a frame that makes no sense: {frame.words}") from error

    async def _on_hello(self, words: list[str], body: bytes) -> None:
        if words[0] != VERSION:
            log.warning("%s speaks version %s", self._launch.gang[0].metadata.name, words[0])
        self._announced.clear()
        self._later.clear()

    async def _on_call(self, words: list[str], body: bytes) -> None:
        key = requests.key(words[0])
        self._announced.add(key)
        call = self._calls.get(key)
        if call is not None:
            await self._repeat(call)
        elif len(self._calls) >= MOST_CALLS:
            self._later.append(key)
        else:
            call = self._calls[key] = _Call(key)
            call.planning = asyncio.create_task(self._begin(call, body))

    async def _repeat(self, call: _Call) -> None:
        """Say again what was lost with the last connection."""
        if call.answer is not None:
            self._say(call, call.answer)
        elif call.is_running:
            await self._launcher.again(call.key)
        elif call.wanted is not None and not call.wanted.done():
            self._ask(call)

    async def _on_ready(self, words: list[str], body: bytes) -> None:
        """The pod has named all its calls: nobody waits for others."""
        for key in self._calls.keys() - self._announced:
            await self._forget(key)

    async def _on_took(self, words: list[str], body: bytes) -> None:
        call = self._calls.get(words[0])
        if call is not None and call.is_running:
            await self._launcher.confirm(call.key, int(words[1]), int(words[2]))

    async def _on_end(self, words: list[str], body: bytes) -> None:
        await self._forget(words[0])

    async def _forget(self, key: str) -> None:
        call = self._calls.pop(key, None)
        if call is None:
            return
        if call.planning:
            call.planning.cancel()
        if call.is_running:
            await self._launcher.forget(key)
        if self._later:
            self._send("again", self._later.popleft())

    async def _on_signal(self, words: list[str], body: bytes) -> None:
        call = self._calls.get(words[0])
        if call is not None and call.is_running and words[1] in SIGNALS:
            await self._launcher.kill(call.key, int(signal.Signals[f"SIG{words[1]}"]))

    # -- files and input that a plan needs ---------------------------------------------------------------

    async def _on_input(self, words: list[str], body: bytes) -> None:
        call, offset = self._calls.get(words[0]), int(words[1])
        if call is None or offset > len(call.input):
            return
        if offset == len(call.input):
            call.input += body
        if len(call.input) > MOST_INPUT:
            _settle(call, TOO_LARGE)
        else:
            self._send("taken", call.key, offset)

    async def _on_eof(self, words: list[str], body: bytes) -> None:
        call = self._calls.get(words[0])
        if call is not None:
            _settle(call, bytes(call.input))

    async def _on_file(self, words: list[str], body: bytes) -> None:
        call = self._calls.get(words[0])
        if call is not None and int(words[1]) == len(call.files):
            _settle(call, body if len(body) <= MOST_INPUT else TOO_LARGE)

    async def _on_no_file(self, words: list[str], body: bytes) -> None:
        call = self._calls.get(words[0])
        if call is not None and int(words[1]) == len(call.files):
            _settle(call, outcomes.Unreadable(body[:LONGEST_REASON]))

    # -- planning ------------------------------------------------------------------------------------------

    async def _begin(self, call: _Call, body: bytes) -> None:
        try:
            request = requests.parse(body)
            plan = await self._plan(call, request)
        except requests.BadRequest as error:
            plan = outcomes.refused("penstock", error.message)
        except errors.SlurmError as error:
            plan = outcomes.refused(request.name, error.message)
        if isinstance(plan, outcomes.Run) and not self._launch.request.relays:
            plan = outcomes.refused(plan.program, OLD_LAUNCHER)
        if isinstance(plan, outcomes.Answer):
            call.answer = plan
            self._say(call, plan)
        else:
            call.is_running = True
            await self._launcher.run(call.key, plan)

    async def _plan(self, call: _Call, request: requests.Request) -> outcomes.Answer | outcomes.Run:
        facts = await self._context.slurm_facts.now()
        policy = self._context.settings
        job = outcomes.Job(
            id=self._launch.job_id,
            release=facts.release,
            cluster=facts.cluster.encode(),
            appends=facts.appends,
            commands=policy.pod_commands,
            bridged_partitions=tuple(policy.partitions),
            default_partition=facts.default_partition,
        )
        while True:
            plan = await asyncio.to_thread(commands.plan, request, job, call.files)
            if not isinstance(plan, outcomes.Wanted):
                return plan
            for path in plan.files:
                call.files[path] = await self._bring(call, path)

    async def _bring(self, call: _Call, path: bytes) -> bytes | outcomes.Unreadable:
        """A file of the pod, or the call's whole standard input."""
        call.path, call.wanted = path, asyncio.get_running_loop().create_future()
        self._ask(call)
        return await call.wanted

    def _ask(self, call: _Call) -> None:
        if call.path == outcomes.STDIN:
            self._send("feed", call.key)
        else:
            self._send("open", call.key, len(call.files), body=call.path)

    def _say(self, call: _Call, answer: outcomes.Answer) -> None:
        if answer.stderr:
            self._send("print", call.key, STDERR, 0, body=answer.stderr)
        self._send("end", call.key, "exit", answer.code)


def _settle(call: _Call, content: bytes | outcomes.Unreadable) -> None:
    if call.wanted is not None and not call.wanted.done():
        call.wanted.set_result(content)
