"""Takes a snapshot for the check: Kubernetes first, then Slurm, then penstockd.

The check reads Slurm and Kubernetes itself, with its own rights. If either does not answer, the result is
unknown, never "no violations".
"""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec

from penstock import errors, wellknown
from penstock.audit import endrecords, snapshots
from penstock.hooks import wire
from penstock.kube import kinds, lists, podview, types
from penstock.model import audits, jobs, states
from penstock.render import pods as pods_of
from penstock.slurm import accounting, reader

SOCKET_SECONDS = 10.0
OURS = f"{wellknown.LABEL_APP}={wellknown.APP_VALUE}"


@dataclasses.dataclass(frozen=True)
class Looker:
    """Reads Slurm, Kubernetes and penstockd."""

    kube: lists.Source
    slurm_conf: str
    socket: str

    async def look(self) -> snapshots.Snapshot:
        pods, nodes, secrets = await asyncio.gather(
            lists.everything(self.kube, kinds.PODS, types.Pod),
            lists.everything(self.kube, kinds.NODES, types.Node),
            lists.everything(self.kube, kinds.SECRETS, types.Secret, labels=OURS, metadata_only=True),
        )
        slurm = reader.SlurmReader(self.slurm_conf)
        cluster, found, closed, daemon = await asyncio.gather(
            slurm.cluster_name(),
            slurm.all_jobs(),
            slurm.given_to_nobody(),
            asyncio.to_thread(ask_daemon, self.socket),
        )
        found = await self._with_recorded_comments(found, daemon)
        return snapshots.Snapshot(
            pods=tuple(podview.as_seen_by(pods_of.label_of(cluster), pod) for pod in pods.items),
            nodes=nodes.items,
            secrets=tuple(secret for secret in secrets.items if _is_of(cluster, secret)),
            jobs={job.job_id: job.in_kubernetes(daemon.gpu_resources if daemon else {}) for job in found},
            closed=closed,
            daemon=daemon,
        )

    async def _with_recorded_comments(
        self, found: tuple[jobs.Job, ...], daemon: audits.DaemonView | None
    ) -> tuple[jobs.Job, ...]:
        """Comments of ended jobs from accounting, where slurmctld did not take the reason."""
        told = {(end.job_id, end.restart): end.reason for end in (daemon.ends if daemon else ())}
        ended = (job for job in found if job.state in states.BY_ITSELF)
        silent = {
            job.job_id
            for job in ended
            if not endrecords.says(job, told.get((job.job_id, job.identity.restart), ""))
        }
        if not silent:
            return found
        said = await accounting.comments(self.slurm_conf, silent)
        return tuple(
            dataclasses.replace(job, comment=said.get(job.job_id, job.comment))
            if job.job_id in silent
            else job
            for job in found
        )


def _is_of(cluster: str, secret: types.Secret) -> bool:
    """Several Slurm clusters may share one Kubernetes."""
    return secret.metadata.labels.get(wellknown.LABEL_CLUSTER, "") == pods_of.label_of(cluster)


def ask_daemon(path: str) -> audits.DaemonView | None:
    """penstockd's reservations and job ends; None without a valid answer, UsageError if it refuses."""
    try:
        answer = wire.ask(path, SOCKET_SECONDS, wellknown.VERB_AUDIT)
    except (OSError, wire.WireError):
        return None
    if not answer or len(answer) < 2 or answer[0] not in (b"error", b"audit"):
        return None
    if answer[0] == b"error":
        raise errors.UsageError(
            f"penstockd refuses the audit: {answer[1].decode(errors='replace')}",
            hint="Run the check as root or as SlurmUser.",
        )
    try:
        return msgspec.json.decode(answer[1], type=audits.DaemonView)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
