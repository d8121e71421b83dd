"""Waits for the end of a job: one shared watch for all, a GET only when that seems to have missed something.

The job ends with rank 0. Another rank that ends before is a broken gang, unless Slurm takes it: slurmd runs
the Epilog of a node without a step at once, while the script still has its time to end. A pod that does not
start in time is a job that "runs" without running: it ends with what the cluster says about it.
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

FIRST_LOOK = 5.0  # seconds without news after which the API is asked directly, then twice that, and so on
LAST_LOOK = 300.0


class Patience:
    """How long to wait for the next word of a pod: a lost event is noticed soon after it was due, and a long
    job costs next to no questions.
    """

    def __init__(self, time: clock.Clock, start_timeout: float) -> None:
        self._clock = time
        self._look = FIRST_LOOK
        self._deadline = time.now() + start_timeout
        self.started = False

    def seconds(self) -> float:
        """Until the API is to be asked."""
        if self.started:
            return self._look
        return max(min(self._look, self._deadline - self._clock.now()), 0.01)

    def news(self, *, started: bool) -> None:
        self._look = FIRST_LOOK
        self.started = self.started or started

    def asked(self) -> None:
        self._look = min(self._look * 2, LAST_LOOK)

    def extend(self) -> None:
        """The API was away: a pod may have started without our knowing."""
        self._deadline = max(self._deadline, self._clock.now() + FIRST_LOOK)

    def is_over(self) -> bool:
        return not self.started and self._clock.now() >= self._deadline


@dataclasses.dataclass(frozen=True)
class Follower:
    """Follows gangs to their end."""

    context: Context
    start_timeout: float

    async def end_of(
        self, gang: tuple[types.Pod, ...], is_leaving: Callable[[], bool] = lambda: False
    ) -> Outcome:
        """The outcome, however long it takes. Trouble with the API is never an outcome.

        `is_leaving` tells whether Slurm takes the job's nodes back.
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
        """None when the pod's container runs; the outcome when it never will."""
        return await self._follow(pod, until_started=True)

    async def end_of_pod(self, pod: types.Pod) -> Outcome:
        outcome = await self._follow(pod, until_started=False)
        assert outcome is not None  # noqa: S101  # only until_started ends without one
        return outcome

    async def _follow(self, pod: types.Pod, *, until_started: bool) -> Outcome | None:
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
                if outcome is not None or (patience.started and until_started):
                    return outcome
                if patience.is_over():
                    return await self._never_started(pod)

    async def _ask(self, pod: types.Pod, patience: Patience) -> Outcome | None:
        """What the API itself says: an end, certainly gone, or nothing new. No answer is no time spent."""
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
        """Deleted by somebody, or gone with its node, for which the job is not to blame."""
        node = pod.spec.node_name
        lost = bool(node) and await confirmation.node(self.context.kube, node) is None
        return NODE_LOST if lost else VANISHED

    async def _never_started(self, pod: types.Pod) -> Outcome:
        known = self.context.pods.objects.get(reflectors.key_of(pod.metadata), pod)
        waiting = podview.container_state(known).waiting
        known_cause = waiting.reason if waiting else "no reason given"
        said = (await self.warnings(pod) or ("",))[-1] or known_cause
        detail = f"not started within {self.start_timeout:g} s: {said}"
        return Outcome(kind=OutcomeKind.START_TIMEOUT, exit_code=LOST, detail=detail)

    async def warnings(self, pod: types.Pod) -> tuple[str, ...]:
        """What the cluster complains of about this pod, the latest last; nothing when it does not answer."""
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
