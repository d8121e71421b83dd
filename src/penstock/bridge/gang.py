"""Makes all pods of a job's attempt or none: unbound pods first, then the Secret, then the bindings, rank 0
last.

Every step may have been done before by a penstockd that was killed: a conflict means "it is there", and what
is there is checked to be of this attempt before it is used. Rank 0 is bound only when all others run: the
script never starts in a gang that kubelets refuse in part. Before the step that lets it start the launcher
is told, and from then on it asks for this gang only: should its pods vanish unseen, no second one is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from penstock import crashpoints, errors
from penstock.bridge import confirming, following, namespaces, ports
from penstock.kube import decoding, reading, types
from penstock.model import jobs, launches
from penstock.render import pods as rendering

log = logging.getLogger(__name__)


class GangRefused(errors.PenstockError):
    """Kubernetes does not take a part of the gang; nothing of it is left."""

    def __init__(self, message: str, *, requeue: bool = False) -> None:
        super().__init__(message)
        self.requeue = requeue


Starting = Callable[[], Awaitable[None]]
"""Told before the step after which the script may run."""


async def _announced() -> None:
    """The launcher knows already."""


@dataclasses.dataclass(frozen=True)
class GangMaker:
    """Makes gangs."""

    kube: ports.Kube
    follower: following.Follower
    settings: rendering.PodSettings
    namespaces: namespaces.Namespaces
    holds: Callable[[int, str], bool]
    """Whether a node is still a job's."""
    bare: set[str] = dataclasses.field(default_factory=set)
    """uids of pods that we have made and that have no Secret of theirs yet, as far as we know."""

    async def create(
        self,
        allocation: jobs.Allocation,
        *,
        owner: launches.Owner,
        request: launches.LaunchRequest,
        starting: Starting,
    ) -> tuple[types.Pod, ...]:
        """The gang's pods, all placed; `starting` is awaited before the script can run."""
        made: list[types.Pod] = []
        async with self._all_or_none(made):
            await self.namespaces.ensure(owner)
            crashpoints.reach("launch.namespace-made")
            for rank in range(len(allocation.shares)):
                manifest = rendering.render_pod(
                    allocation,
                    rank,
                    owner=owner,
                    request=request,
                    settings=self.settings,
                    strict_groups=self._strict_groups(allocation, rank),
                )
                made.append(await self._create_pod(manifest, allocation.identity, owner))
                crashpoints.reach("launch.a-pod-made")
            crashpoints.reach("launch.pods-made")
            await self._start(made, allocation, owner=owner, request=request, starting=starting)
        self.bare.difference_update(pod.metadata.uid for pod in made)
        return tuple(made)

    async def complete(
        self,
        found: tuple[types.Pod, ...],
        allocation: jobs.Allocation,
        *,
        owner: launches.Owner,
        request: launches.LaunchRequest,
    ) -> tuple[types.Pod, ...]:
        """Place a gang whose maker was stopped after it had announced the start."""
        made = list(found)
        async with self._all_or_none(made):
            await self._start(made, allocation, owner=owner, request=request, starting=_announced)
        return tuple(made)

    @contextlib.asynccontextmanager
    async def _all_or_none(self, made: list[types.Pod]) -> AsyncIterator[None]:
        """What was made goes again when the rest is refused."""
        try:
            yield
        except (errors.KubeUnavailable, errors.KubeNotAllowed):
            raise  # to be tried again, and what is there is found then
        except GangRefused:
            await self._remove(made)
            raise
        except (errors.KubeError, errors.UsageError) as error:
            await self._remove(made)
            raise GangRefused(error.message) from error
        except ValueError as error:  # what cannot be rendered or sent now never can
            log.exception("the objects of a job cannot be made")
            await self._remove(made)
            raise GangRefused(f"its objects cannot be made: {error}") from error

    def _strict_groups(self, allocation: jobs.Allocation, rank: int) -> bool:
        """Whether the pod's node can keep groups out that the image gives its user; a kubelet that cannot
        refuses the pod. Where kube-scheduler chooses the node, all must be able to.
        """
        nodes = self.follower.nodes.objects
        trusted = self.settings.is_trusted(allocation.partition)
        places = list(nodes.values()) if trusted else [nodes.get(f"/{allocation.shares[rank].node}")]
        return all(place and place.status.features.supplemental_groups_policy for place in places)

    async def _start(
        self,
        made: list[types.Pod],
        allocation: jobs.Allocation,
        *,
        owner: launches.Owner,
        request: launches.LaunchRequest,
        starting: Starting,
    ) -> None:
        """Secret and bindings. In mode trust the Secret is all that the script still lacks."""
        trusted = self.settings.is_trusted(allocation.partition)
        if trusted:
            await starting()
        await self._create_secret(made[0], allocation.identity, owner=owner, request=request)
        crashpoints.reach("launch.secret-made")
        await self._place(made, allocation, bound=not trusted, starting=starting)

    async def _place(
        self, made: list[types.Pod], allocation: jobs.Allocation, *, bound: bool, starting: Starting
    ) -> None:
        """Bind ranks 1 and up, see them run, then bind rank 0; in mode trust, only see them run."""
        nodes = [share.node for share in allocation.shares]
        for rank in range(1, len(made)) if bound else ():
            made[rank] = await self._bind(made[rank], allocation.identity, nodes[rank])
            crashpoints.reach("launch.another-bound")
        for rank in range(1, len(made)):
            outcome = await self.follower.started(made[rank])
            if outcome is not None:
                raise GangRefused(f"rank {rank} on {nodes[rank]}: {outcome.reason}", requeue=outcome.requeue)
        crashpoints.reach("launch.others-run")
        if bound:
            await starting()
            crashpoints.reach("launch.announced")
            made[0] = await self._bind(made[0], allocation.identity, nodes[0])
        crashpoints.reach("launch.all-bound")

    async def _create_pod(
        self, manifest: rendering.Manifest, identity: jobs.JobIdentity, owner: launches.Owner
    ) -> types.Pod:
        try:
            return await self._make_pod(manifest, identity)
        except errors.KubeNotFound:
            await self.namespaces.ensure(owner, anew=True)
            return await self._make_pod(manifest, identity)

    async def _make_pod(self, manifest: rendering.Manifest, identity: jobs.JobIdentity) -> types.Pod:
        meta = manifest["metadata"]
        try:
            made = self._ours(await self.kube.create("pods", manifest, namespace=meta["namespace"]))
            self.bare.add(made.metadata.uid)
            return made
        except errors.KubeConflict as error:
            try:
                answer = await self.kube.get("pods", namespace=meta["namespace"], name=meta["name"])
            except errors.KubeNotFound:
                raise errors.KubeUnavailable(f"no pod was made: {error.message}") from error
        pod = self._ours(answer)
        if reading.belongs_to(pod, identity) and pod.metadata.deletion_timestamp:
            raise errors.KubeUnavailable(f"pod {meta['name']} of this attempt is still being removed")
        if not reading.belongs_to(pod, identity):
            raise errors.KubeError(
                f"a pod {meta['namespace']}/{meta['name']} is there already and is not this job's"
            )
        return pod

    def _ours(self, answer: bytes) -> types.Pod:
        cluster = rendering.label_of(self.settings.cluster)
        return reading.as_seen_by(cluster, decoding.decode(answer, types.Pod))

    async def _create_secret(
        self,
        first: types.Pod,
        identity: jobs.JobIdentity,
        *,
        owner: launches.Owner,
        request: launches.LaunchRequest,
    ) -> None:
        """One that is there already was made before a crash, or goes with a pod that was removed."""
        uid = first.metadata.uid
        manifest = rendering.render_secret(
            identity, owner=owner, request=request, settings=self.settings, owner_pod_uid=uid
        )
        try:
            await self.kube.create("secrets", manifest, namespace=first.metadata.namespace)
        except errors.KubeConflict as error:
            if error.reason == namespaces.UNCOUNTED:
                raise errors.KubeUnavailable(f"no Secret was made: {error.message}") from error
            if uid in self.bare:
                raise errors.KubeUnavailable("the Secret of pods that were removed is still there") from None
        except errors.KubeUnavailable:
            self.bare.discard(uid)  # it may have been made all the same
            raise
        self.bare.discard(uid)

    async def _bind(self, pod: types.Pod, identity: jobs.JobIdentity, node: str) -> types.Pod:
        """The pod, on its node. One that is there unbound is found and removed by the node's Epilog; bound
        after that it would be on a node that Slurm has given to others.
        """
        if pod.spec.node_name == node:
            return pod
        if not self.holds(identity.job_id, node):
            raise GangRefused(f"Slurm has taken node {node} back")
        seen = f"/{node}" in self.follower.nodes.objects
        if not seen and await confirming.node(self.kube, node) is None:  # the API would take the binding
            raise GangRefused(f"node {node} has left Kubernetes", requeue=True)
        meta = pod.metadata
        binding = rendering.render_binding(meta.name, meta.namespace, node)
        try:
            await self.kube.create("pods", binding, namespace=meta.namespace, name=meta.name, sub="binding")
        except errors.KubeConflict:  # an earlier try came late, or somebody was faster
            found = await confirming.pod(self.kube, meta.namespace, meta.name)
            if found is None or (found.metadata.uid, found.spec.node_name) != (meta.uid, node):
                raise
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))

    async def _remove(self, made: list[types.Pod]) -> None:
        for pod in made:
            meta = pod.metadata
            self.bare.discard(meta.uid)
            try:
                await self.kube.delete(
                    "pods", namespace=meta.namespace, name=meta.name, uid=meta.uid, grace=1
                )
                crashpoints.reach("refuse.one-removed")
            except errors.KubeError as error:
                log.warning("pod %s of a refused gang is left to the Epilog: %s", meta.name, error.message)
