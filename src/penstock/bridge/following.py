"""Waits for the end of a job: one shared watch for all, a GET only when that seems to have missed something.

The job ends with rank 0. Another rank that ends before is a broken gang. A pod that does not start in time is
a job that "runs" without running: it ends with what the cluster says about it.
"""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec

from penstock import clock, errors
from penstock.bridge import outcomes, ports
from penstock.kube import reading, reflecting, types

LOOK_ANYWAY = 60.0  # seconds without news after which the API is asked directly


class PodEvent(msgspec.Struct, frozen=True, rename="camel"):
    """What the cluster says about an object."""

    type: str = ""
    reason: str = ""
    message: str = ""


class EventList(msgspec.Struct):
    """What a list of events answers."""

    items: list[PodEvent]


@dataclasses.dataclass(frozen=True)
class Follower:
    """Follows gangs to their end."""

    kube: ports.Kube
    pods: reflecting.Reflector[types.Pod]
    nodes: reflecting.Reflector[types.Node]
    clock: clock.Clock
    start_timeout: float

    async def end_of(self, gang: tuple[types.Pod, ...]) -> outcomes.Outcome:
        """The outcome, however long it takes. Trouble with the API is never an outcome."""
        tasks = [asyncio.create_task(self.end_of_pod(pod)) for pod in gang]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0] in done:
                return tasks[0].result()
            broken = next(rank for rank, task in enumerate(tasks) if task in done)
            outcome = tasks[broken].result()
            reason = outcome.reason or f"its pod ended with exit code {outcome.exit_code}"
            return outcomes.Outcome(outcomes.LOST, f"rank {broken}: {reason}", requeue=outcome.requeue)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def started(self, pod: types.Pod) -> outcomes.Outcome | None:
        """None when the pod's container runs; the outcome when it never will."""
        return await self._follow(pod, until_started=True)

    async def end_of_pod(self, pod: types.Pod) -> outcomes.Outcome:
        outcome = await self._follow(pod, until_started=False)
        assert outcome is not None  # noqa: S101  # only until_started ends without one
        return outcome

    async def _follow(self, pod: types.Pod, *, until_started: bool) -> outcomes.Outcome | None:
        deadline = self.clock.now() + self.start_timeout
        has_started = False
        self.pods.put_if_new(pod)
        with self.pods.subscribe(reflecting.key_of(pod.metadata)) as changes:
            while True:
                left = (
                    LOOK_ANYWAY if has_started else max(min(LOOK_ANYWAY, deadline - self.clock.now()), 0.01)
                )
                change = await changes.next(within=left)
                seen = change.obj if change and change.obj.metadata.uid == pod.metadata.uid else None
                outcome = outcomes.outcome_of(seen) if seen else None
                if outcome is None and (change is None or change.deleted):
                    outcome = await self._ask(pod)
                has_started = has_started or (seen is not None and reading.has_started(seen))
                if outcome is not None or (has_started and until_started):
                    return outcome
                if not has_started and self.clock.now() >= deadline:
                    return await self._never_started(pod)

    async def _ask(self, pod: types.Pod) -> outcomes.Outcome | None:
        """What the API itself says: an end, certainly gone, or nothing new."""
        try:
            answer = await self.kube.get("pods", namespace=pod.metadata.namespace, name=pod.metadata.name)
        except errors.KubeNotFound:
            return self._vanished(pod)
        except errors.KubeError:
            return None
        found = msgspec.json.decode(answer, type=types.Pod)
        same = found.metadata.uid == pod.metadata.uid
        return outcomes.outcome_of(found) if same else self._vanished(pod)

    def _vanished(self, pod: types.Pod) -> outcomes.Outcome:
        """Deleted by somebody, or gone with its node, for which the job is not to blame."""
        node = pod.spec.node_name
        lost = node and self.nodes.fresh and f"/{node}" not in self.nodes.objects
        return outcomes.NODE_LOST if lost else outcomes.VANISHED

    async def _never_started(self, pod: types.Pod) -> outcomes.Outcome:
        known = self.pods.objects.get(reflecting.key_of(pod.metadata), pod)
        waiting = reading.container_state(known).waiting
        said = await self._last_warning(pod) or (waiting.reason if waiting else "no word from the cluster")
        return outcomes.Outcome(outcomes.LOST, f"not started within {self.start_timeout:g} s: {said}")

    async def _last_warning(self, pod: types.Pod) -> str:
        selector = f"involvedObject.uid={pod.metadata.uid}"
        try:
            answer = await self.kube.get(
                "events", namespace=pod.metadata.namespace, query={"fieldSelector": selector}
            )
        except errors.KubeError:
            return ""
        found = [
            event for event in msgspec.json.decode(answer, type=EventList).items if event.type == "Warning"
        ]
        return " ".join(f"{found[-1].reason}: {found[-1].message}".split()) if found else ""
