"""Waits for the end of a job's pods by the shared watch, with a GET when an event may have been missed.

A job ends with rank 0. Another rank that ends first breaks the gang, unless Slurm is releasing the job:
slurmd runs the Epilog of a node without a step at once, while the script still has time to end. A pod that
does not start in time ends the job, with Kubernetes' warning as the reason.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from penstock import clock, errors
from penstock.bridge import confirmation
from penstock.bridge.context import Context
from penstock.judge import outcomes
from penstock.kube import kinds, lists, podevents, podview, reflectors, types
from penstock.model.reasons import LOST, NODE_LOST, VANISHED, Outcome, OutcomeKind

FIRST_LOOK = 5.0  # seconds without an event until the API is asked; doubled each time
LONGEST_LOOK = 300.0


class Patience:
    """When to ask the API for a lost event: soon after one was due, and rarely during a long job."""

    def __init__(self, time: clock.Clock, start_timeout: float) -> None:
        self._clock = time
        self._look = FIRST_LOOK
        self._deadline = time.now() + start_timeout
        self.started = False

    def seconds(self) -> float:
        if self.started:
            return self._look
        return max(min(self._look, self._deadline - self._clock.now()), 0.01)

    def news(self, *, started: bool) -> None:
        self._look = FIRST_LOOK
        self.started = self.started or started

    def asked(self) -> None:
        self._look = min(self._look * 2, LONGEST_LOOK)

    def extend(self) -> None:
        """After an outage of the API, in which the pod may have started unseen."""
        self._deadline = max(self._deadline, self._clock.now() + FIRST_LOOK)

    def is_over(self) -> bool:
        return not self.started and self._clock.now() >= self._deadline


@dataclasses.dataclass(frozen=True)
class Follower:
    context: Context
    start_timeout: float

    async def end_of(
        self, gang: tuple[types.Pod, ...], is_leaving: Callable[[], bool] = lambda: False
    ) -> Outcome:
        """The gang's outcome, however long it takes; API errors are never one.

        `is_leaving` tells whether Slurm is taking the job's nodes back.
        """
        tasks = [asyncio.create_task(self.end_of_pod(pod)) for pod in gang]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if is_leaving():
                await asyncio.wait(tasks[:1])
            if tasks[0].done():
                return tasks[0].result()
            broken = next(rank for rank, task in enumerate(tasks) if task in done)
            return tasks[broken].result().of_rank(broken)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def started(self, pod: types.Pod) -> Outcome | None:
        """None once the pod's container runs; an outcome if it never will."""
        return await self.until(pod, podview.has_started)

    async def end_of_pod(self, pod: types.Pod) -> Outcome:
        outcome = await self.until(pod, lambda _: False)
        assert outcome is not None  # noqa: S101  # nothing else ends it
        return outcome

    async def until(self, pod: types.Pod, reached: Callable[[types.Pod], bool]) -> Outcome | None:
        """None once the pod is seen in that state; an outcome if it ends before."""
        patience = Patience(self.context.time, self.start_timeout)
        self.context.pods.put(pod)
        with self.context.pods.subscribe(reflectors.key_of(pod.metadata)) as changes:
            while True:
                change = await changes.next(within=patience.seconds())
                seen = change.obj if change and change.obj.metadata.uid == pod.metadata.uid else None
                outcome = outcomes.outcome_of(seen) if seen else None
                if seen is not None:
                    patience.news(started=podview.has_started(seen))
                if outcome is None and (change is None or change.deleted or patience.is_over()):
                    outcome = await self._ask(pod, patience)
                if outcome is not None or reached(self.latest(pod)):
                    return outcome
                if patience.is_over():
                    return await self._never_started(pod)

    def latest(self, pod: types.Pod) -> types.Pod:
        """The pod by the cache."""
        cached = self.context.pods.objects.get(reflectors.key_of(pod.metadata), pod)
        return cached if cached.metadata.uid == pod.metadata.uid else pod

    async def _ask(self, pod: types.Pod, patience: Patience) -> Outcome | None:
        """The outcome by the API itself, or None. Without an answer the start deadline is extended."""
        patience.asked()
        try:
            found = await confirmation.pod(self.context.kube, pod.metadata.namespace, pod.metadata.name)
            if found is None or found.metadata.uid != pod.metadata.uid:
                return await self._vanished(pod)
        except errors.KubeError:
            patience.extend()
            return None
        self.context.pods.put(found)
        if podview.has_started(found):
            patience.started = True
        return outcomes.outcome_of(found)

    async def _vanished(self, pod: types.Pod) -> Outcome:
        """The outcome of a deleted pod: the job is not to blame if its node is gone, too."""
        node = pod.spec.node_name
        lost = bool(node) and await confirmation.node(self.context.kube, node) is None
        return NODE_LOST if lost else VANISHED

    async def _never_started(self, pod: types.Pod) -> Outcome:
        waiting = podview.container_state(self.latest(pod)).waiting
        reason = waiting.reason if waiting else "no reason given"
        warning = (await self.warnings(pod) or ("",))[-1]
        detail = f"not started within {self.start_timeout:g} s: {warning or reason}"
        return Outcome(kind=OutcomeKind.START_TIMEOUT, exit_code=LOST, detail=detail)

    async def warnings(self, pod: types.Pod) -> tuple[str, ...]:
        """Warning events about the pod, the latest last; empty if the API does not answer."""
        try:
            found = await lists.everything(
                self.context.kube,
                kinds.EVENTS,
                podevents.Event,
                namespace=pod.metadata.namespace,
                fields=podevents.about(pod.metadata.uid),
            )
        except errors.KubeError:
            return ()
        return podevents.words(found.items)
