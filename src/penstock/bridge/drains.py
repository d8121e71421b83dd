"""Drains nodes whose Epilog timed out while a job's pods may still run, and resumes them.

Such a node is drained with a reason of ours, and resumed once it has no pods of ended jobs or has left
Kubernetes. So is a node that Slurm drained because our Epilog was killed. Nodes with any other reason, or on
which the site's own Epilog failed, stay drained.
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
"""Slurmctld's reason after any Epilog failed, ours or the site's, unless the node was drained before."""
CLOCK_SLACK = 2.0
FORGOTTEN_AFTER = 60.0
"""Seconds after which the note of a node that is not drained is removed: Slurm knows by then how the Epilog
ended, so somebody has resumed the node since.
"""


@dataclasses.dataclass(frozen=True)
class Drainer:
    """Drained nodes are read from Slurm every time: a killed Epilog drains its node without telling us."""

    context: Context
    placements: placement.Placements
    partitions: frozenset[str]
    """The bridged ones; nodes of others are never touched."""
    notes: epilogs.Notes
    obsolete: dict[epilogs.Note, float] = dataclasses.field(default_factory=dict)
    """Notes of nodes that are not drained, with the time since when."""
    kept: dict[str, str] = dataclasses.field(default_factory=dict)
    """Nodes that stay drained, with the reason that was logged."""

    async def abandon(self, job_id: int, node: str) -> None:
        """Drain the node until the job's pods are gone. A drained node keeps its reason: with ours instead,
        the node would be resumed too early.
        """
        drained = {each.node for each in await self.context.slurm.drained(self.partitions)}
        if node not in drained:
            await self.context.slurm.drain(node, f"penstock: pods of job {job_id} may still run here")
        self.context.store.release(job_id, node)
        crashpoints.reach("drain.done")
        joblog.of(log, job_id).warning("node %s is drained: pods of the job may still run there", node)

    async def lift(self) -> None:
        """Resume the nodes that are clean again."""
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
        """Remove notes of nodes that somebody else has resumed: they must not resume the next drain."""
        nodes, now = {drain.node for drain in drained}, self.context.time.now()
        obsolete = [note for note in notes if note.node not in nodes and not note.is_running]
        known = {note: self.obsolete.get(note, now) for note in obsolete}
        self.obsolete.clear()
        self.obsolete.update(known)
        for note, since in known.items():
            if now - since >= FORGOTTEN_AFTER:
                self.notes.remove(note)
        for node in self.kept.keys() - nodes:
            del self.kept[node]

    def _is_ours(self, drain: nodes.Drain, notes: Sequence[epilogs.Note]) -> bool:
        """Whether our own Epilog is the only reason for the drain."""
        by_slurm = drain.reason == SLURMS_OWN
        if not by_slurm and not OURS.fullmatch(drain.reason):
            return False
        failed = [note for note in notes if not note.is_ours]
        if failed:
            return self._keep(drain, f"the site's own Epilog failed after job {failed[0].job_id}")
        killed = (note for note in notes if not note.is_running and note.at <= drain.since + CLOCK_SLACK)
        if by_slurm and not any(killed):
            return self._keep(drain, "no Epilog of Penstock's was killed there")
        return True

    def _keep(self, drain: nodes.Drain, why: str) -> bool:
        if self.kept.get(drain.node) != why:
            self.kept[drain.node] = why
            remedy = f"scontrol update NodeName={drain.node} State=RESUME"
            log.warning(
                "node %s stays drained (%s): %s; to resume: %s", drain.node, drain.reason, why, remedy
            )
        return False

    async def _resume(self, node: str) -> None:
        try:
            await self.context.slurm.resume(node)
        except errors.SlurmUnavailable:
            raise
        except errors.SlurmError as error:
            log.warning("node %s is clean, but Slurm does not resume it: %s", node, error.message)
        else:
            log.info("node %s is clean and resumed", node)

    async def _is_clean(self, drain: nodes.Drain) -> bool:
        """Whether the API has no pod of ours on the node without a reservation."""
        kube = self.context.kube
        if await confirmation.node(kube, drain.node) is None:
            return drain.reason != SLURMS_OWN or self._keep(drain, "Kubernetes does not know it")
        found = await confirmation.pods_on(kube, (drain.node,), self.context.pods)
        return not any(
            not self._is_covered(job_id, drain.node) and not podview.is_over(pod)
            for pod in found
            if (job_id := podview.job_id(pod)) is not None
        )

    def _is_covered(self, job_id: int, node: str) -> bool:
        """Whether the job may run there: on its nodes, or on any that kube-scheduler chose."""
        held = self.context.store.reservation(job_id)
        return held is not None and self.placements.of(held.partition).covers(job_id, node)
