"""Tells the pods of a gang each other's names, by one exec each, so that no Service and no DNS is needed.

The pods' addresses are known only when they run. Rank 0 is told last, because its agent then starts the
script: rank 0 knows the names only if all do. A pod that was told already ignores it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from penstock import errors, wellknown
from penstock.bridge.concurrently import gather
from penstock.bridge.container import Container
from penstock.bridge.context import Context
from penstock.bridge.follower import Follower
from penstock.kube import podview, types
from penstock.model.jobspec import PodSpec
from penstock.model.reasons import Outcome, OutcomeKind, not_started
from penstock.render import hostnames

AT_ONCE = 8  # execs at a time
END_SECONDS = 5.0  # from a failed exec until the pod's end is known


def _waiting(asked: PodSpec) -> str:
    """The container of rank 0's pod that waits for the names: before an image's own entrypoint, its init
    container.
    """
    return wellknown.NAMES_NAME if asked.own_entrypoint else wellknown.CONTAINER_NAME


@dataclasses.dataclass(frozen=True)
class Introduction:
    """One gang: its bound pods and their nodes, by rank."""

    context: Context
    follower: Follower
    pods: Sequence[types.Pod]
    nodes: Sequence[str]
    asked: PodSpec

    async def tell_others(self) -> Outcome | None:
        """Tell all but rank 0, when all pods run. An outcome if one has ended or cannot be told."""
        first = _waiting(self.asked)
        outcome = await self.follower.until(self.pods[0], lambda pod: podview.is_reachable(pod, first))
        if outcome is not None:
            return outcome
        others = range(1, len(self.pods))
        for rank in others:
            outcome = await self.follower.until(self.pods[rank], podview.is_reachable)
            if outcome is not None:
                return outcome.of_rank(rank, self.nodes[rank])
        told = (self._tell(rank, wellknown.CONTAINER_NAME) for rank in others)
        outcomes = zip(others, await gather(told, at_once=AT_ONCE), strict=True)
        return next((end.of_rank(rank, self.nodes[rank]) for rank, end in outcomes if end), None)

    async def tell_first(self) -> Outcome | None:
        """Tell rank 0, so that its script starts. An outcome if it cannot be told."""
        return await self._tell(0, _waiting(self.asked))

    async def _tell(self, rank: int, container: str) -> Outcome | None:
        pod = self.pods[rank]
        addresses = [self.follower.latest(one).status.pod_ip for one in self.pods]
        hosts = hostnames.lines(self.nodes, addresses, without=rank)
        try:
            await Container(self.context.kube, pod, container).tell_names(hosts)
        except (errors.KubeUnavailable, errors.KubeNotAllowed):
            raise
        except errors.KubeError as error:
            return await self._why(pod, error)
        return None

    async def _why(self, pod: types.Pod, error: errors.KubeError) -> Outcome:
        """Why the command failed: with its container, else by itself."""
        try:
            return await asyncio.wait_for(self.follower.end_of_pod(pod), END_SECONDS)
        except TimeoutError:
            detail = f"the names of the job's nodes cannot be written to /etc/hosts: {error.message}"
            return not_started(OutcomeKind.AGENT_FAILED, detail)


async def were_made(context: Context, first: types.Pod, asked: PodSpec) -> bool:
    """Whether rank 0 of a gang, by its pod as it is now, was told the names."""
    if not podview.has_names(first):
        return True
    if not podview.has_started(first) or asked.own_entrypoint:
        return podview.has_started(first)
    if podview.container_state(first).running is None:
        return True
    try:
        await Container(context.kube, first).has_names()
    except (errors.KubeUnavailable, errors.KubeNotAllowed):
        raise
    except errors.KubeError:
        return False
    return True
