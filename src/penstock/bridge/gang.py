"""Creates all pods of an attempt or none: first the pods, then Secret and bindings as the placement orders.

A killed penstockd may have done any step before: on a conflict the existing object is used, if it is of this
attempt. The launcher is told before the script can start. From then on it attaches to this gang only: if the
pods vanish unseen, no second gang is created.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from penstock import crashpoints, errors
from penstock.bridge import confirmation, follower, introductions, jobnamespaces, placement, podremoval
from penstock.bridge.context import Context
from penstock.kube import codec, kinds, podview, types
from penstock.model import jobs, launches, sentences
from penstock.model.reasons import Outcome, OutcomeKind, not_started
from penstock.render import pods as rendering
from penstock.render import secrets

log = logging.getLogger(__name__)


class GangRefused(errors.PenstockError):
    """The gang was refused in part, and all of it is deleted."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(sentences.outcome(outcome))
        self.outcome = outcome


Starting = Callable[[], Awaitable[None]]
"""Awaited before the step after which the script may run."""


async def _announced() -> None:
    pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What a gang is created from."""

    allocation: jobs.Allocation
    owner: launches.Owner
    request: launches.LaunchRequest

    @property
    def identity(self) -> jobs.JobIdentity:
        return self.allocation.identity


@dataclasses.dataclass(frozen=True)
class GangMaker:
    context: Context
    follower: follower.Follower
    namespaces: jobnamespaces.Namespaces
    placements: placement.Placements
    without_secret: set[str] = dataclasses.field(default_factory=set)
    """uids of pods that we created and whose Secret does not exist yet, as far as we know."""

    async def create(self, plan: Plan, starting: Starting) -> tuple[types.Pod, ...]:
        """Create and place the gang; `starting` is awaited before the script can run."""
        made: list[types.Pod] = []
        async with self._all_or_none(made):
            await self.namespaces.ensure(plan.owner)
            crashpoints.reach("launch.namespace-made")
            for rank in range(len(plan.allocation.shares)):
                made.append(await self._create_pod(self._manifest(plan, rank), plan))
                crashpoints.reach("launch.a-pod-made")
            crashpoints.reach("launch.pods-made")
            await self._place(made, plan, starting)
        self.without_secret.difference_update(pod.metadata.uid for pod in made)
        return tuple(made)

    async def complete(self, found: tuple[types.Pod, ...], plan: Plan) -> tuple[types.Pod, ...]:
        """Place a gang whose start was announced before penstockd was restarted."""
        made = list(found)
        async with self._all_or_none(made):
            await self._place(made, plan, _announced)
        return tuple(made)

    async def _place(self, made: list[types.Pod], plan: Plan, starting: Starting) -> None:
        gang = _Gang(self, made, plan, starting)
        await self.placements.of(plan.allocation.partition).place(gang)
        crashpoints.reach("launch.all-bound")

    @contextlib.asynccontextmanager
    async def _all_or_none(self, made: list[types.Pod]) -> AsyncIterator[None]:
        """Delete the pods that were created if the gang is refused."""
        try:
            yield
        except (errors.KubeUnavailable, errors.KubeNotAllowed):
            raise  # the next try finds what was created
        except GangRefused:
            await self._remove(made)
            raise
        except (errors.KubeError, errors.UsageError, ValueError) as error:
            if isinstance(error, ValueError):  # the objects can never be rendered or sent
                log.exception("cannot create the objects of a job")
                detail = f"its objects cannot be created: {error}"
            else:
                detail = error.message
            await self._remove(made)
            raise GangRefused(not_started(OutcomeKind.API_REFUSED, detail)) from error

    def _manifest(self, plan: Plan, rank: int) -> rendering.Manifest:
        """Groups of the image's user are kept out (strict supplementalGroupsPolicy) if every candidate node
        supports that; a kubelet without support rejects the pod.
        """
        share = plan.allocation.shares[rank]
        nodes = self.placements.of(plan.allocation.partition).candidates(share)
        return rendering.render_pod(
            plan.allocation,
            rank,
            owner=plan.owner,
            request=plan.request,
            policy=self.context.settings,
            strict_groups=all(node and node.status.features.supplemental_groups_policy for node in nodes),
        )

    async def _create_pod(self, manifest: rendering.Manifest, plan: Plan) -> types.Pod:
        try:
            return await self._make_pod(manifest, plan.identity)
        except errors.KubeNotFound:
            await self.namespaces.ensure(plan.owner, anew=True)
            return await self._make_pod(manifest, plan.identity)

    async def _make_pod(self, manifest: rendering.Manifest, identity: jobs.JobIdentity) -> types.Pod:
        kube, meta = self.context.kube, manifest["metadata"]
        try:
            made = self._ours(await kube.create(kinds.PODS, manifest, namespace=meta["namespace"]))
            self.without_secret.add(made.metadata.uid)
            return made
        except errors.KubeConflict as error:
            try:
                answer = await kube.get(kinds.PODS, namespace=meta["namespace"], name=meta["name"])
            except errors.KubeNotFound:
                raise errors.KubeUnavailable(f"no pod was created: {error.message}") from error
        pod = self._ours(answer)
        if not podview.belongs_to(pod, identity):
            raise errors.KubeError(f"pod {meta['namespace']}/{meta['name']} exists and is not this job's")
        if pod.metadata.deletion_timestamp:
            raise errors.KubeUnavailable(f"pod {meta['name']} of this attempt is still being removed")
        return pod

    def _ours(self, answer: bytes) -> types.Pod:
        return podview.as_seen_by(self.context.cluster, codec.decode(answer, types.Pod))

    async def create_secret(self, first: types.Pod, plan: Plan) -> None:
        """An existing Secret was created before a crash, or is garbage-collected with an earlier pod."""
        uid = first.metadata.uid
        manifest = secrets.render_secret(
            plan.identity,
            owner=plan.owner,
            request=plan.request,
            policy=self.context.settings,
            owner_pod_uid=uid,
        )
        try:
            await self.context.kube.create(kinds.SECRETS, manifest, namespace=first.metadata.namespace)
        except errors.KubeConflict as error:
            if error.reason == jobnamespaces.QUOTA_CONFLICT:
                raise errors.KubeUnavailable(f"no Secret was created: {error.message}") from error
            if uid in self.without_secret:
                raise errors.KubeUnavailable("the Secret of deleted pods still exists") from None
        except errors.KubeUnavailable:
            self.without_secret.discard(uid)  # it may have been created all the same
            raise
        self.without_secret.discard(uid)

    async def bind(self, pod: types.Pod, job_id: int, node: str) -> types.Pod:
        """Bind the pod. Refused if the node was released meanwhile: its Epilog will not see the pod any more,
        and Slurm may have given the node to others.
        """
        if pod.spec.node_name == node:
            return pod
        if not self.context.store.holds(job_id, node):
            raise GangRefused(not_started(OutcomeKind.NODE_TAKEN_BACK, "", node=node))
        kube, seen = self.context.kube, f"/{node}" in self.context.nodes.objects
        if not seen and await confirmation.node(kube, node) is None:  # the API accepts such a binding
            raise GangRefused(not_started(OutcomeKind.NODE_GONE, "", node=node, requeue=True))
        meta = pod.metadata
        binding = rendering.render_binding(meta.name, meta.namespace, node)
        try:
            await kube.create(kinds.PODS, binding, namespace=meta.namespace, name=meta.name, sub="binding")
        except errors.KubeConflict:  # bound by an earlier try whose answer was lost, or by somebody else
            found = await confirmation.pod(kube, meta.namespace, meta.name)
            if found is None or (found.metadata.uid, found.spec.node_name) != (meta.uid, node):
                raise
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))

    async def _remove(self, made: list[types.Pod]) -> None:
        for pod in made:
            self.without_secret.discard(pod.metadata.uid)
            try:
                await podremoval.delete(self.context, pod)
                crashpoints.reach("refuse.one-removed")
            except errors.KubeError as error:
                name = pod.metadata.name
                log.warning("pod %s of a refused gang stays until the Epilog: %s", name, error.message)


class _Gang:
    """A gang for its placement."""

    def __init__(self, maker: GangMaker, made: list[types.Pod], plan: Plan, starting: Starting) -> None:
        self._maker, self._made, self._plan, self._starting = maker, made, plan, starting
        self._nodes = [share.node for share in plan.allocation.shares]

    @property
    def ranks(self) -> range:
        return range(len(self._made))

    async def make_secret(self) -> None:
        await self._maker.create_secret(self._made[0], self._plan)
        crashpoints.reach("launch.secret-made")

    async def bind(self, rank: int) -> None:
        job_id, node = self._plan.identity.job_id, self._nodes[rank]
        self._made[rank] = await self._maker.bind(self._made[rank], job_id, node)
        if rank:
            crashpoints.reach("launch.another-bound")

    async def others_run(self) -> None:
        for rank in self.ranks[1:]:
            outcome = await self._maker.follower.started(self._made[rank])
            if outcome is not None:
                raise GangRefused(outcome.of_rank(rank, self._nodes[rank]))
        crashpoints.reach("launch.others-run")

    @property
    def waits_for_names(self) -> bool:
        return podview.has_names(self._made[0])

    async def tell_others(self) -> None:
        _allow(await self._introduction.tell_others())
        crashpoints.reach("launch.others-told")

    async def tell_first(self) -> None:
        _allow(await self._introduction.tell_first())

    @property
    def _introduction(self) -> introductions.Introduction:
        maker, asked = self._maker, self._plan.request.pod
        return introductions.Introduction(maker.context, maker.follower, self._made, self._nodes, asked)

    async def announce(self) -> None:
        await self._starting()
        crashpoints.reach("launch.announced")


def _allow(outcome: Outcome | None) -> None:
    if outcome is not None:
        raise GangRefused(outcome)
