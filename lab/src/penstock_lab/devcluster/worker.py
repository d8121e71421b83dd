"""A pod on its node, from admission to the last status, as in kubelet's pod worker.

A worker is one task; wherever it waits, it also waits for the order to stop. It accesses the cluster through
the agents, which a fault can cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock_lab.devcluster import containers, podnetwork, podprocesses, quotas
from penstock_lab.devcluster.objectstore import Entry, now
from penstock_lab.devcluster.podlogs import Log, ring
from penstock_lab.devcluster.podstatus import ContainerState, PodState
from penstock_lab.devcluster.statuses import Json

if TYPE_CHECKING:
    from penstock_lab.devcluster.agent import Agents

_LONGEST_BACKOFF: Final = 300.0
_LAST_WORDS: Final = 4096  # bytes of a termination message; kubelet takes the end of a longer one
_PART: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE: Final = re.compile(
    rf"(?:[A-Za-z0-9.-]+(?::\d+)?/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@\w+:[0-9a-fA-F]{{32,}})?"
)
_RETRY_SECONDS: Final = 2.0  # a host path may appear without notification
_logger = logging.getLogger(__name__)


class Worker:
    def __init__(self, agents: Agents, pod: Entry, directory: Path) -> None:
        self.pod = pod
        self.node = str(pod.obj["spec"]["nodeName"])
        self.vanished = False
        self.claims: quotas.Amounts = {}
        self.logs: dict[str, Log] = {}
        self.pids: dict[str, int] = {}
        spec = pod.obj["spec"]
        self.state = PodState(_states(spec["containers"]), _states(spec.get("initContainers") or []))
        self._agents = agents
        self._directory = directory
        self._volumes: dict[str, Path] = {}
        self._stopping = asyncio.Event()
        self._deleted = asyncio.Event()
        self._closing = False
        self._grace = 0.0
        self._killer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Run the pod until it has ended and, if it is deleted, confirm the deletion."""
        obey = asyncio.create_task(self._obey())
        try:
            await self._live()
            self.state.over, self.claims = True, {}
            self.publish()
            if not self._closing:
                await obey
                self._agents.confirm(self.pod)
        finally:
            obey.cancel()
            self._clean_up()

    def note(self, entry: Entry) -> None:
        """Take a new version of the pod, which may be marked for deletion."""
        self.pod = entry
        if entry.is_going:
            self._grace = float(entry.obj["metadata"]["deletionGracePeriodSeconds"])
            self._deleted.set()
            if self._stopping.is_set() and self._agents.lets_go(self):
                self.stop(self._grace)

    def vanish(self) -> None:
        """Kill the pod: its object was force-deleted."""
        self.vanished, self._grace, self.claims = True, 0.0, {}
        self._deleted.set()
        if self._agents.lets_go(self):
            self.stop(0)

    def close(self, grace: float) -> None:
        """Stop, since the dev cluster stops."""
        self._closing = True
        self.stop(grace)

    def stop(self, grace: float) -> None:
        """SIGTERM now, SIGKILL after the grace period; a later call can only shorten it."""
        loop = asyncio.get_running_loop()
        if grace > 0 and not self._stopping.is_set():
            self._signal_all(signal.SIGTERM)
        self._stopping.set()
        ring(self._agents.bell)
        if self._killer is None or self._killer.when() > loop.time() + grace:
            if self._killer:
                self._killer.cancel()
            self._killer = loop.call_later(grace, self._signal_all, signal.SIGKILL)

    def publish(self) -> None:
        """Write the pod's status, unless the node has not admitted it yet."""
        if self.state.started_at:
            self._agents.publish(self)

    def _warn(self, reason: str, message: str) -> None:
        self._agents.event(self.pod, reason, message, warning=True)
        self.publish()

    def _fail(self, reason: str, message: str) -> None:
        self.state.failure = {"reason": reason, "message": message}

    def _signal_all(self, number: int) -> None:
        for pid in self.pids.values():
            podprocesses.send(pid, number)

    async def _obey(self) -> None:
        await self._deleted.wait()
        while not self._agents.lets_go(self):
            await self._agents.bell.wait()
        if self.pids:
            self._agents.event(self.pod, "Killing", "Stopping containers of the pod")
        self.stop(self._grace)

    async def _until(self, ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait for the condition or the timeout; False if the pod must stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not ready() and not self._stopping.is_set():
                    await self._agents.bell.wait()
        return not self._stopping.is_set()

    async def _look_again(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._agents.bell.wait(), _RETRY_SECONDS)

    async def _live(self) -> None:
        """Errors of this machine, such as a full disk, fail the pod and appear in its status."""
        spec = self.pod.obj["spec"]
        if not await self._until(lambda: self._agents.reachable(self.node)):
            return
        self.state.started_at = now()
        refusal = self._agents.admit(self)
        if refusal:
            self._fail(*refusal)
            self._agents.event(self.pod, *refusal, warning=True)
            return
        limit, loop = spec.get("activeDeadlineSeconds"), asyncio.get_running_loop()
        deadline = loop.call_later(float(limit), self._expire) if limit else None
        try:
            if await self._mount() and await self._run_init(spec):
                runs = zip(spec["containers"], self.state.containers, strict=True)
                await asyncio.gather(*(self._keep_running(*run, spec["restartPolicy"]) for run in runs))
        except (OSError, LookupError, TypeError, ValueError) as problem:
            _logger.exception("pod %s", self.pod.key)
            self._fail("AgentError", str(problem))
            self.stop(0)
            self._signal_all(signal.SIGKILL)  # at once: nothing waits for stop's timer if the pod is deleted
        finally:
            if deadline:
                deadline.cancel()

    def _expire(self) -> None:
        self._fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        self.stop(float(self.pod.obj["spec"]["terminationGracePeriodSeconds"]))

    async def _mount(self) -> bool:
        """Prepare all volumes; False if the pod must stop."""
        while not self._stopping.is_set():
            try:
                place = self._directory / "volumes"
                self._volumes = containers.prepare(self.pod.obj, place, self._agents.store)
                self.state.address = self.state.address or self._agents.addresses.of(self.pod.obj)
            except (containers.MountError, OSError) as problem:
                self._warn("FailedMount", str(problem))
                await self._look_again()
            else:
                return True
        return False

    async def _run_init(self, spec: Json) -> bool:
        """Run the init containers in order; False if one failed or the pod must stop."""
        policy = "Never" if spec["restartPolicy"] == "Never" else "OnFailure"
        for state in self.state.containers if self.state.init else ():
            state.wait("PodInitializing")
        for container, state in zip(spec.get("initContainers") or (), self.state.init, strict=True):
            await self._keep_running(container, state, policy)
            if state.exit_code != 0:
                return False
        return True

    async def _keep_running(self, container: Json, state: ContainerState, policy: str) -> None:
        """Run a container, and again according to its restart policy."""
        delay = 0.0
        while await self._has_image(state):
            code = await self._run_once(container, state)
            again = policy == "Always" or (policy == "OnFailure" and code != 0)
            if self._stopping.is_set() or not again or code is None:
                if any(one.exit_code is None for one in self.state.containers):
                    self.publish()
                return
            state.restarts += 1
            state.wait("ContainerCreating")
            if delay:
                message = f"back-off {delay:g}s restarting failed container={state.name}"
                state.wait("CrashLoopBackOff", message)
                self._warn("BackOff", f"Back-off restarting failed container {state.name}")
                await self._until(lambda: False, delay)
            delay = min(max(self._agents.backoff, delay * 2), _LONGEST_BACKOFF)

    async def _has_image(self, state: ContainerState) -> bool:
        if not _REFERENCE.fullmatch(state.image):
            why = f'couldn\'t parse image name "{state.image}": invalid reference format'
            state.wait("InvalidImageName", f'Failed to apply default image tag "{state.image}": {why}')
            self._warn("InspectFailed", why)
            return await self._until(lambda: False)
        missing = {
            "ErrImagePull": ("Failed", f'image "{state.image}" not found'),
            "ImagePullBackOff": ("BackOff", f'Back-off pulling image "{state.image}"'),
        }
        for reason, (event, message) in missing.items():
            if self._agents.image_missing(state.image):
                state.wait(reason, message)
                self._warn(event, message)
                await self._until(lambda: False, min(1.0, self._agents.backoff))
        return await self._until(lambda: not self._agents.image_missing(state.image))

    async def _run_once(self, container: Json, state: ContainerState) -> int | None:
        """Run once; returns the exit code, or None if the pod had to stop before the start."""
        try:
            about = await self._description(container, state)
            return None if about is None else await self._run_described(about, container, state)
        except podprocesses.StartError as failure:
            state.end(128, "StartError", message=str(failure))
            self._agents.event(self.pod, "Failed", f"Error: {failure}", warning=True)
            return 128

    async def _description(self, container: Json, state: ContainerState) -> Json | None:
        """podinit's description, once all references of the container exist; None if the pod must stop."""
        obj, store = self.pod.obj, self._agents.store
        obj = {**obj, "status": podnetwork.status(self.state.address)}
        while not self._stopping.is_set():
            try:
                return containers.describe(obj, container, self._volumes, self._directory, store)
            except containers.ConfigError as problem:
                state.wait(problem.reason, str(problem))
                self._warn("Failed", f"Error: {problem}")
                await self._look_again()
        return None

    async def _run_described(self, about: Json, container: Json, state: ContainerState) -> int:
        last_words = self._directory / f"{state.name}.termination"
        last_words.write_bytes(b"")
        last_words.chmod(0o666)
        about["isolate"] = self._agents.isolate
        if about["isolate"]:
            about["mounts"].append((str(last_words), container["terminationMessagePath"], False))
            targets = {target for _, target, _ in about["mounts"]}
            about["mounts"] += podnetwork.hosts_file(
                self.pod.obj, self.state.address, self._directory, targets
            )
        group = self._limit_memory(container, state)
        about["cgroup"] = str(group.path / "cgroup.procs") if group else ""
        if state.name in self.logs:
            self.logs[state.name].forget()
        log = self.logs[state.name] = Log(self._directory / f"{state.name}.log")
        try:
            status = await self._watch(about, state, log)
            code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            oom = code != 0 and group is not None and group.was_out_of_memory()
            message = last_words.read_bytes()[-_LAST_WORDS:].decode(errors="replace")
            state.end(code, "OOMKilled" if oom else "Error" if code else "Completed", message=message)
            return code
        finally:
            log.close()
            with contextlib.suppress(OSError):  # removed when the cluster stops
                group.remove() if group else None

    async def _watch(self, about: Json, state: ContainerState, log: Log) -> int:
        """Run to the last byte of output; returns the wait status."""
        sink = log.open_pipe()
        try:
            pid = self.pids[state.name] = await podprocesses.start(about, sink)
        finally:
            os.close(sink)
        try:
            state.run(f"{self.pod.uid}/{state.name}/{state.restarts}")
            if self._killer:  # stopped during the start
                overdue = self._killer.when() <= asyncio.get_running_loop().time()
                podprocesses.send(pid, signal.SIGKILL if overdue else signal.SIGTERM)
            self._agents.event(self.pod, "Started", f"Started container {state.name}")
            self.publish()
            status = await podprocesses.reap(pid)
        finally:
            del self.pids[state.name]
        await log.drained()
        return status

    def _limit_memory(self, container: Json, state: ContainerState) -> podprocesses.Group | None:
        limit = (container["resources"].get("limits") or {}).get("memory")
        if limit is None:
            return None
        name = f"{self.pod.uid}-{state.name}-{state.restarts}"
        group = self._agents.cgroups.make(name, quotas.parse(limit) // 1000)
        if group is None:
            self._agents.event(self.pod, "MemoryLimitIgnored", self._agents.cgroups.problem, warning=True)
        return group

    def _clean_up(self) -> None:
        for log in self.logs.values():
            log.forget()
        if self._killer:
            self._killer.cancel()
        shutil.rmtree(self._directory, ignore_errors=True)


def _states(containers: list[Json]) -> list[ContainerState]:
    return [ContainerState(one["name"], one["image"]) for one in containers]
