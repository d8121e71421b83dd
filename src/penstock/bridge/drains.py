"""Nodes on which a job's pods may still run although its Epilog could wait no longer.

They are drained with a reason of ours and freed by ourselves once the node is seen clean, or has left
Kubernetes. A node that Slurm drained because our Epilog was killed is freed likewise. A reason that somebody
else gave is never touched, and neither is a node on which the site's own Epilog failed: in doubt it stays
drained.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Sequence

from penstock import crashpoints, errors, joblog
from penstock.bridge import confirmation, epilogs, placement
from penstock.bridge.context import Context
from penstock.kube import podview
from penstock.model import nodes

log = logging.getLogger(__name__)

OURS = re.compile(r"penstock: pods of job \d+ may still run here")
SLURMS_OWN = "Epilog error"
"""What slurmctld writes when an Epilog failed, ours or the site's, on a node that is not drained yet."""
CLOCK_SLACK = 2.0
FORGOTTEN_AFTER = 60.0
"""Seconds for which a node is not drained although an Epilog has left its note: by then Slurm has heard of
that Epilog's end, and somebody has freed the node since.
"""


@dataclasses.dataclass(frozen=True)
class Drainer:
    """Drains, and lifts.

    What there is to lift is asked of Slurm every time: an Epilog that was killed drains its node without a
    word to us.
    """

    context: Context
    placements: placement.Placements
    partitions: frozenset[str]
    """The bridged ones: no other node is touched."""
    notes: epilogs.Notes
    over: dict[epilogs.Note, float] = dataclasses.field(default_factory=dict)
    """Notes of nodes that are not drained, with the time since when."""
    left: dict[str, str] = dataclasses.field(default_factory=dict)
    """Nodes that stay drained, with the reason that was logged."""

    async def abandon(self, job_id: int, node: str) -> None:
        """Nothing new on this node until the job's pods are known to be gone. One that is drained already
        keeps its reason: ours would be lifted, and the other forgotten.
        """
        drained = {each.node for each in await self.context.slurm.drained(self.partitions)}
        if node not in drained:
            await self.context.slurm.drain(node, f"penstock: pods of job {job_id} may still run here")
        self.context.store.release(job_id, node)
        crashpoints.reach("drain.done")
        joblog.of(log, job_id).warning("node %s is drained: pods of the job may still run there", node)

    async def lift(self) -> None:
        """Free what is clean again."""
        if not self.context.is_fresh:
            return
        drained = await self.context.slurm.drained(self.partitions)
        notes = self.notes.read()
        self._forget(drained, notes)
        for drain in drained:
            own = [note for note in notes if note.node == drain.node]
            if self._is_ours(drain, own) and await self._is_clean(drain):
                crashpoints.reach("lift.clean")
                await self._resume(drain.node)
                for note in own:
                    if not note.is_running:
                        self.notes.remove(note)

    def _forget(self, drained: Sequence[nodes.Drain], notes: Sequence[epilogs.Note]) -> None:
        """Notes of nodes that somebody else has freed must not free them the next time."""
        nodes, now = {drain.node for drain in drained}, self.context.time.now()
        over = [note for note in notes if note.node not in nodes and not note.is_running]
        known = {note: self.over.get(note, now) for note in over}
        self.over.clear()
        self.over.update(known)
        for note, since in known.items():
            if now - since >= FORGOTTEN_AFTER:
                self.notes.remove(note)
        for node in self.left.keys() - nodes:
            del self.left[node]

    def _is_ours(self, drain: nodes.Drain, notes: Sequence[epilogs.Note]) -> bool:
        """Whether our own Epilog is why the node is drained, and nothing else is."""
        by_slurm = drain.reason == SLURMS_OWN
        if not by_slurm and not OURS.fullmatch(drain.reason):
            return False
        failed = [note for note in notes if not note.is_ours]
        if failed:
            return self._leave(drain, f"the site's own Epilog failed after job {failed[0].job_id}")
        killed = (note for note in notes if not note.is_running and note.at <= drain.since + CLOCK_SLACK)
        if by_slurm and not any(killed):
            return self._leave(drain, "no Epilog of Penstock's was cut off there")
        return True

    def _leave(self, drain: nodes.Drain, why: str) -> bool:
        if self.left.get(drain.node) != why:
            self.left[drain.node] = why
            log.warning(
                "node %s stays drained (%s): %s; when it is well: scontrol update NodeName=%s State=RESUME",
                drain.node,
                drain.reason,
                why,
                drain.node,
            )
        return False

    async def _resume(self, node: str) -> None:
        """One that Slurm does not give back keeps no other waiting."""
        try:
            await self.context.slurm.resume(node)
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError as error:
            log.warning("node %s is clean again, but Slurm does not resume it: %s", node, error.message)
        else:
            log.info("node %s is clean again", node)

    async def _is_clean(self, drain: nodes.Drain) -> bool:
        """No pod of ours there that no promise covers, by the API's own word."""
        kube = self.context.kube
        if await confirmation.node(kube, drain.node) is None:
            return drain.reason != SLURMS_OWN or self._leave(drain, "Kubernetes does not know it")
        found = await confirmation.pods_on(kube, (drain.node,), self.context.pods)
        return not any(
            not self._is_covered(job_id, drain.node) and not podview.is_over(pod)
            for pod in found
            if (job_id := podview.job_id(pod)) is not None
        )

    def _is_covered(self, job_id: int, node: str) -> bool:
        """Whether the job has a right to be there: to its nodes, or to any that kube-scheduler chose."""
        held = self.context.store.reservation(job_id)
        return held is not None and self.placements.of(held.partition).covers(job_id, node)
