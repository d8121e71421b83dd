"""Makes all pods of a job's attempt or none: pods first, then the Secret and the places, in the order of the
partition's placement.

Every step may have been done before by a penstockd that was killed: a conflict means "it is there", and what
is there is checked to be of this attempt before it is used. Before the step that lets the script start the
launcher is told, and from then on it asks for this gang only: should its pods vanish unseen, no second one is
made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from penstock import crashpoints, errors
from penstock.bridge import confirmation, follower, jobnamespaces, placement, podremoval
from penstock.bridge.context import Context
from penstock.kube import codec, kinds, podview, types
from penstock.model import jobs, launches, sentences
from penstock.model.reasons import Outcome, OutcomeKind, not_started
from penstock.render import pods as rendering
from penstock.render import secrets

log = logging.getLogger(__name__)


class GangRefused(errors.PenstockError):
    """A part of the gang is not taken; nothing of it is left."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(sentences.outcome(outcome))
        self.outcome = outcome


Starting = Callable[[], Awaitable[None]]
"""Told before the step after which the script may run."""


async def _announced() -> None:
    """The launcher knows already."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What a gang is made from."""

    allocation: jobs.Allocation
    owner: launches.Owner
    request: launches.LaunchRequest

    @property
    def identity(self) -> jobs.JobIdentity:
        return self.allocation.identity


@dataclasses.dataclass(frozen=True)
class GangMaker:
    """Makes gangs."""

    context: Context
    follower: follower.Follower
    namespaces: jobnamespaces.Namespaces
    placements: placement.Placements
    bare: set[str] = dataclasses.field(default_factory=set)
    """uids of pods that we have made and that have no Secret of theirs yet, as far as we know."""

    async def create(self, plan: Plan, starting: Starting) -> tuple[types.Pod, ...]:
        """The gang's pods, all placed; `starting` is awaited before the script can run."""
        made: list[types.Pod] = []
        async with self._all_or_none(made):
            await self.namespaces.ensure(plan.owner)
            crashpoints.reach("launch.namespace-made")
            for rank in range(len(plan.allocation.shares)):
                made.append(await self._create_pod(self._manifest(plan, rank), plan))
                crashpoints.reach("launch.a-pod-made")
            crashpoints.reach("launch.pods-made")
            await self._place(made, plan, starting)
        self.bare.difference_update(pod.metadata.uid for pod in made)
        return tuple(made)

    async def complete(self, found: tuple[types.Pod, ...], plan: Plan) -> tuple[types.Pod, ...]:
        """Place a gang whose maker was stopped after it had announced the start."""
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
            raise GangRefused(not_started(OutcomeKind.API_REFUSED, error.message)) from error
        except ValueError as error:  # what cannot be rendered or sent now never can
            log.exception("the objects of a job cannot be made")
            await self._remove(made)
            detail = f"its objects cannot be made: {error}"
            raise GangRefused(not_started(OutcomeKind.API_REFUSED, detail)) from error

    def _manifest(self, plan: Plan, rank: int) -> rendering.Manifest:
        """Groups that the image gives its user are kept out where every node that the pod may come to can do
        so; a kubelet that cannot refuses the pod.
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
        meta = manifest["metadata"]
        try:
            made = self._ours(
                await self.context.kube.create(kinds.PODS, manifest, namespace=meta["namespace"])
            )
            self.bare.add(made.metadata.uid)
            return made
        except errors.KubeConflict as error:
            try:
                answer = await self.context.kube.get(
                    kinds.PODS, namespace=meta["namespace"], name=meta["name"]
                )
            except errors.KubeNotFound:
                raise errors.KubeUnavailable(f"no pod was made: {error.message}") from error
        pod = self._ours(answer)
        if podview.belongs_to(pod, identity) and pod.metadata.deletion_timestamp:
            raise errors.KubeUnavailable(f"pod {meta['name']} of this attempt is still being removed")
        if not podview.belongs_to(pod, identity):
            raise errors.KubeError(
                f"a pod {meta['namespace']}/{meta['name']} is there already and is not this job's"
            )
        return pod

    def _ours(self, answer: bytes) -> types.Pod:
        return podview.as_seen_by(self.context.cluster, codec.decode(answer, types.Pod))

    async def create_secret(self, first: types.Pod, plan: Plan) -> None:
        """One that is there already was made before a crash, or goes with a pod that was removed."""
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
            if error.reason == jobnamespaces.UNCOUNTED:
                raise errors.KubeUnavailable(f"no Secret was made: {error.message}") from error
            if uid in self.bare:
                raise errors.KubeUnavailable("the Secret of pods that were removed is still there") from None
        except errors.KubeUnavailable:
            self.bare.discard(uid)  # it may have been made all the same
            raise
        self.bare.discard(uid)

    async def bind(self, pod: types.Pod, job_id: int, node: str) -> types.Pod:
        """The pod, on its node. One that is there unbound is found and removed by the node's Epilog; bound
        after that it would be on a node that Slurm has given to others.
        """
        if pod.spec.node_name == node:
            return pod
        if not self.context.store.holds(job_id, node):
            raise GangRefused(not_started(OutcomeKind.NODE_TAKEN_BACK, "", node=node))
        kube, seen = self.context.kube, f"/{node}" in self.context.nodes.objects
        if not seen and await confirmation.node(kube, node) is None:  # the API would take the binding
            raise GangRefused(not_started(OutcomeKind.NODE_GONE, "", node=node, requeue=True))
        meta = pod.metadata
        binding = rendering.render_binding(meta.name, meta.namespace, node)
        try:
            await kube.create(kinds.PODS, binding, namespace=meta.namespace, name=meta.name, sub="binding")
        except errors.KubeConflict:  # an earlier try came late, or somebody was faster
            found = await confirmation.pod(kube, meta.namespace, meta.name)
            if found is None or (found.metadata.uid, found.spec.node_name) != (meta.uid, node):
                raise
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))

    async def _remove(self, made: list[types.Pod]) -> None:
        for pod in made:
            self.bare.discard(pod.metadata.uid)
            try:
                await podremoval.delete(self.context, pod)
                crashpoints.reach("refuse.one-removed")
            except errors.KubeError as error:
                name = pod.metadata.name
                log.warning("pod %s of a refused gang is left to the Epilog: %s", name, error.message)


class _Gang:
    """The pods of one plan, for its placement."""

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

    async def announce(self) -> None:
        await self._starting()
        crashpoints.reach("launch.announced")
