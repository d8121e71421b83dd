"""One pod on its node, from admission to the last status: what kubelet's pod worker does.

A worker is one task. It walks through the pod's life, and wherever it waits it also listens for the order
to stop. It writes the pod's status through a Host, which is also what connects it to the rest of the
cluster and can be cut off by a fault.
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
from typing import Final, Protocol

from penstock.devcluster import children, description, environment, podstatus, quantities, times, volumes
from penstock.devcluster.bell import Bell
from penstock.devcluster.cgroups import Cgroups, Group
from penstock.devcluster.children import Children
from penstock.devcluster.logs import Log
from penstock.devcluster.podstatus import ContainerState
from penstock.devcluster.statuses import Json
from penstock.devcluster.store import Entry, Store

_LONGEST_BACKOFF: Final = 300.0
_PART: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE: Final = re.compile(
    rf"(?:[A-Za-z0-9.-]+(?::\d+)?/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@\w+:[0-9a-fA-F]{{32,}})?"
)
_RETRY_SECONDS: Final = 2.0  # a host path can appear without anybody telling us
_logger = logging.getLogger(__name__)


class Host(Protocol):
    """What a worker may ask of the agent of its node."""

    store: Store
    children: Children
    cgroups: Cgroups
    bell: Bell
    isolate: bool
    backoff: float

    def reachable(self, pod: Json) -> bool: ...
    def lets_go(self, pod: Json) -> bool: ...
    def image_missing(self, image: str) -> bool: ...
    def admit(self, pod: Json) -> tuple[str, str]: ...
    def release(self, pod: Json) -> None: ...
    def publish(self, pod: Entry, state: podstatus.PodState) -> None: ...
    def confirm(self, pod: Entry) -> None: ...
    def event(self, pod: Entry, reason: str, message: str, *, warning: bool = False) -> None: ...


class Worker:
    """Runs one pod."""

    def __init__(self, host: Host, pod: Entry, directory: Path) -> None:
        self.pod = pod
        self.logs: dict[str, list[Log]] = {}
        self._host = host
        self._directory = directory
        spec = pod.obj["spec"]
        self.state = podstatus.PodState(
            _states(spec.get("initContainers") or []), _states(spec["containers"])
        )
        self._stopping = asyncio.Event()
        self._deleted = asyncio.Event()
        self._vanished = False
        self._closing = False
        self._grace = 0.0
        self.pids: dict[str, int] = {}
        self._killer: asyncio.TimerHandle | None = None
        self._sources: dict[str, Path] = {}

    async def run(self) -> None:
        """The pod's whole life on this node."""
        obey = asyncio.create_task(self._obey())
        try:
            await self._live_or_fail()
            self.state.over = True
            self._host.release(self.pod.obj)
            self.publish()
            if not self._closing:
                await obey
                self._host.confirm(self.pod)
        finally:
            obey.cancel()
            self._clean_up()

    def note(self, entry: Entry) -> None:
        """The pod has a new version; it may have been marked for deletion."""
        self.pod = entry
        metadata = entry.obj["metadata"]
        if "deletionTimestamp" in metadata:
            self._grace = float(metadata["deletionGracePeriodSeconds"])
            self._deleted.set()
            if self._stopping.is_set() and self._host.lets_go(entry.obj):
                self.stop(self._grace)

    def vanish(self) -> None:
        """The object is gone, by force: end what runs for it."""
        self._vanished = True
        self._grace = 0.0
        self._deleted.set()
        if self._host.reachable(self.pod.obj):
            self.stop(0)

    def close(self, grace: float) -> None:
        """The dev cluster itself ends."""
        self._closing = True
        self.stop(grace)

    def stop(self, grace: float) -> None:
        """SIGTERM now and SIGKILL after the grace; a later call can only shorten it."""
        loop = asyncio.get_running_loop()
        first = not self._stopping.is_set()
        self._stopping.set()
        self._host.bell.ring()
        if first and grace > 0:
            self._signal_all(signal.SIGTERM)
        if self._killer is None or self._killer.when() > loop.time() + grace:
            if self._killer:
                self._killer.cancel()
            self._killer = loop.call_later(grace, self._signal_all, signal.SIGKILL)

    def publish(self) -> None:
        self._host.publish(self.pod, self.state)

    def _signal_all(self, number: int) -> None:
        for pid in self.pids.values():
            children.send(pid, number)

    async def _obey(self) -> None:
        await self._deleted.wait()
        while not (
            self._host.reachable(self.pod.obj) if self._vanished else self._host.lets_go(self.pod.obj)
        ):
            await self._host.bell.wait()
        if self.pids:
            self._host.event(self.pod, "Killing", "Stopping containers of the pod")
        self.stop(self._grace)

    async def _until(self, ready: Callable[[], bool]) -> bool:
        """Wait for something; False when the pod has to stop instead."""
        while not ready() and not self._stopping.is_set():
            await self._host.bell.wait()
        return not self._stopping.is_set()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _live_or_fail(self) -> None:
        """A problem of this machine (disk full, say) fails the pod and is told in its status."""
        try:
            await self._live()
        except (OSError, LookupError, TypeError, ValueError) as problem:
            _logger.exception("pod %s", self.pod.key)
            self._signal_all(signal.SIGKILL)
            self.state.failed, self.state.reason, self.state.message = True, "AgentError", str(problem)

    async def _live(self) -> None:
        spec = self.pod.obj["spec"]
        if not await self._until(lambda: self._host.reachable(self.pod.obj)):
            return
        self.state.started_at = times.now()
        reason, message = self._host.admit(self.pod.obj)
        if reason:
            self.state.failed, self.state.reason, self.state.message = True, reason, message
            self._host.event(self.pod, reason, message, warning=True)
            return
        deadline = self._expire_after(spec.get("activeDeadlineSeconds"))
        try:
            if await self._mount() and await self._run_init(spec):
                runs = zip(spec["containers"], self.state.main, strict=True)
                await asyncio.gather(
                    *(self._keep_running(one, state, spec["restartPolicy"]) for one, state in runs)
                )
        finally:
            deadline.cancel()

    def _expire_after(self, seconds: float | None) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(seconds if seconds is not None else 10**8, self._expire)

    def _expire(self) -> None:
        self.state.failed, self.state.reason = True, "DeadlineExceeded"
        self.state.message = "Pod was active on the node longer than the specified deadline"
        self.stop(float(self.pod.obj["spec"]["terminationGracePeriodSeconds"]))

    async def _mount(self) -> bool:
        """Have all volumes ready; False when the pod stops before that."""
        while not self._stopping.is_set():
            try:
                self._sources = volumes.Volumes(
                    self.pod.obj, self._directory / "volumes", self._host.store
                ).prepare()
            except (volumes.MountError, OSError) as problem:
                self._host.event(self.pod, "FailedMount", str(problem), warning=True)
                self.publish()
                await self._host.bell.wait(_RETRY_SECONDS)
            else:
                return True
        return False

    async def _run_init(self, spec: Json) -> bool:
        again = "Never" if spec["restartPolicy"] == "Never" else "OnFailure"
        for state in self.state.main if self.state.init else ():
            state.wait("PodInitializing")
        for container, state in zip(spec.get("initContainers") or (), self.state.init, strict=True):
            if await self._keep_running(container, state, again) != 0:
                return False
        return True

    async def _keep_running(self, container: Json, state: ContainerState, policy: str) -> int | None:
        """Run a container as often as its restart policy wants; the answer is its last exit code."""
        delay = 0.0
        while await self._has_image(state):
            code = await self._run_once(container, state)
            again = policy == "Always" or (policy == "OnFailure" and code != 0)
            if self._stopping.is_set() or not again or code is None:
                if not self.state.has_ended():
                    self.publish()
                return code
            state.restarts += 1
            state.wait("ContainerCreating")
            if delay:
                state.wait(
                    "CrashLoopBackOff", f"back-off {delay:g}s restarting failed container={state.name}"
                )
                self._host.event(
                    self.pod, "BackOff", f"Back-off restarting failed container {state.name}", warning=True
                )
                self.publish()
                await self._pause(delay)
            delay = min(max(self._host.backoff, delay * 2), _LONGEST_BACKOFF)
        return state.exit_code

    async def _has_image(self, state: ContainerState) -> bool:
        if not _REFERENCE.fullmatch(state.image):
            why = f'couldn\'t parse image name "{state.image}": invalid reference format'
            state.wait("InvalidImageName", f'Failed to apply default image tag "{state.image}": {why}')
            self._host.event(self.pod, "InspectFailed", why, warning=True)
            self.publish()
            return await self._until(lambda: False)
        for reason in ("ErrImagePull", "ImagePullBackOff"):
            if not self._host.image_missing(state.image):
                break
            message = (
                f'Back-off pulling image "{state.image}"'
                if "Back" in reason
                else f'image "{state.image}" not found'
            )
            state.wait(reason, message)
            self._host.event(
                self.pod, "Failed" if reason == "ErrImagePull" else "BackOff", message, warning=True
            )
            self.publish()
            await self._pause(min(1.0, self._host.backoff))
        return await self._until(lambda: not self._host.image_missing(state.image))

    async def _run_once(self, container: Json, state: ContainerState) -> int | None:
        """One run; None when the pod had to stop before it began."""
        try:
            about = await self._description(container, state)
            return None if about is None else await self._run_described(about, container, state)
        except children.StartError as failure:
            state.end(128, "StartError", message=str(failure))
            self._host.event(self.pod, "Failed", f"Error: {failure}", warning=True)
            return 128

    async def _run_described(self, about: Json, container: Json, state: ContainerState) -> int:
        log = self._new_log(state)
        group = self._limit_memory(container, state)
        about["cgroup"] = str(group.members) if group else None
        try:
            pid = await self._start(about, log)
            return await self._watch(pid, state, log, group)
        finally:
            log.close()
            self._remove_group(group)

    async def _start(self, about: Json, log: Log) -> int:
        sink = log.open_pipe()
        try:
            return await self._host.children.start(about, sink)
        finally:
            os.close(sink)

    async def _watch(self, pid: int, state: ContainerState, log: Log, group: Group | None) -> int:
        self.pids[state.name] = pid
        state.run(f"{self.pod.uid}/{state.name}/{state.restarts}")
        if self._stopping.is_set():
            children.send(pid, signal.SIGTERM if self._killer and not self._overdue() else signal.SIGKILL)
        self._host.event(self.pod, "Started", f"Started container {state.name}")
        self.publish()
        try:
            status = await self._host.children.wait(pid)
        finally:
            del self.pids[state.name]
        await log.drained()
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = 128 + number if number else os.WEXITSTATUS(status)
        oom = code != 0 and group is not None and group.was_out_of_memory()
        last_words = description.termination_message(self._directory, state.name)
        state.end(code, "OOMKilled" if oom else "Error" if code else "Completed", message=last_words)
        return code

    def _overdue(self) -> bool:
        return self._killer is not None and self._killer.when() <= asyncio.get_running_loop().time()

    def _new_log(self, state: ContainerState) -> Log:
        """A log for this run; the one before is kept, older ones go."""
        kept = self.logs.setdefault(state.name, [])
        self._directory.mkdir(parents=True, exist_ok=True)
        kept.append(Log(self._directory / f"{state.name}.{state.restarts}.log"))
        while len(kept) > 2:
            kept.pop(0).forget()
        return kept[-1]

    async def _description(self, container: Json, state: ContainerState) -> Json | None:
        """What podinit has to know, once everything the container refers to is there."""
        while not self._stopping.is_set():
            try:
                place = self._host
                return description.describe(self.pod.obj, container, self._sources, self._directory, place)
            except (environment.ConfigError, volumes.MountError) as problem:
                state.wait(getattr(problem, "reason", "CreateContainerConfigError"), str(problem))
                self._host.event(self.pod, "Failed", f"Error: {problem}", warning=True)
                self.publish()
                await self._host.bell.wait(_RETRY_SECONDS)
        return None

    def _limit_memory(self, container: Json, state: ContainerState) -> Group | None:
        limit = (container["resources"].get("limits") or {}).get("memory")
        if limit is None:
            return None
        name = f"{self.pod.uid}-{state.name}-{state.restarts}"
        group = self._host.cgroups.make(name, quantities.parse(limit) // 1000)
        if group is None:
            self._host.event(self.pod, "MemoryLimitIgnored", self._host.cgroups.problem, warning=True)
        return group

    def _remove_group(self, group: Group | None) -> None:
        try:
            if group:
                group.remove()
        except OSError as error:
            _logger.warning("cgroup stays until the end: %s", error)

    def _clean_up(self) -> None:
        for log in [log for kept in self.logs.values() for log in kept]:
            log.forget()
        if self._killer:
            self._killer.cancel()
        shutil.rmtree(self._directory, ignore_errors=True)


def _states(containers: list[Json]) -> list[ContainerState]:
    return [ContainerState(one["name"], one["image"]) for one in containers]
