"""Nodes on which a job's pods may still run although its Epilog could wait no longer.

They are drained with a reason of ours and freed by ourselves once the node is seen clean, or has left
Kubernetes. A reason that somebody else gave is never touched.
"""

from __future__ import annotations

import dataclasses
import logging

from penstock import crashpoints, errors
from penstock.bridge import bridge as bridging
from penstock.bridge import confirming
from penstock.kube import reading

log = logging.getLogger(__name__)

OURS = "penstock: "
SLURMS_OWN = "Epilog error"  # what slurmctld writes when the Epilog, which is ours, could not even reach us


@dataclasses.dataclass(frozen=True)
class Drainer:
    """Drains, and lifts.

    What there is to lift is asked of Slurm every time: an Epilog that was killed drains its node without a
    word to us.
    """

    bridge: bridging.Bridge

    async def abandon(self, job_id: int, node: str) -> None:
        """Nothing new on this node until the job's pods are known to be gone."""
        await self.bridge.slurm.drain(node, f"{OURS}pods of job {job_id} may still run here")
        self.bridge.ledger.release(job_id, node)
        crashpoints.reach("drain.done")
        log.warning("node %s drained: pods of job %d may still run there", node, job_id)

    async def lift(self) -> None:
        """Free what is clean again."""
        if not (self.bridge.pods.fresh and self.bridge.nodes.fresh):
            return
        drained = await self.bridge.slurm.drained()
        ours = [node for node, reason in drained.items() if reason.startswith(OURS) or reason == SLURMS_OWN]
        for node in ours:
            if await self._is_clean(node):
                crashpoints.reach("lift.clean")
                await self._resume(node)

    async def _resume(self, node: str) -> None:
        """One that Slurm does not give back keeps no other waiting."""
        try:
            await self.bridge.slurm.resume(node)
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError as error:
            log.warning("node %s is clean again, but Slurm does not resume it: %s", node, error.message)
        else:
            log.info("node %s is clean again", node)

    async def _is_clean(self, node: str) -> bool:
        """No pod of ours there that no promise covers, by the API's own word."""
        bridge = self.bridge
        if await confirming.node(bridge.kube, node) is None:
            return True
        found = await confirming.pods_on(bridge.kube, (node,), bridge.pods)
        return not any(
            not self._is_covered(job_id, node) and not reading.is_over(pod)
            for pod in found
            if (job_id := reading.job_id(pod)) is not None
        )

    def _is_covered(self, job_id: int, node: str) -> bool:
        """Whether the job has a right to be there: to its nodes, or to any that kube-scheduler chose."""
        held = self.bridge.ledger.of(job_id)
        trusted = held is not None and self.bridge.settings.is_trusted(held.partition)
        return trusted or self.bridge.ledger.holds(job_id, node)
