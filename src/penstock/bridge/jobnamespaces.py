"""Namespaces of users or accounts, created by their first job, with NetworkPolicy and quota as configured.

A namespace that was seen once is taken for granted. If it is gone, creating a pod fails with 404, and only
then the API is asked again.
"""

from __future__ import annotations

from penstock import crashpoints, errors
from penstock.bridge import protocols
from penstock.kube import kinds
from penstock.model import launches, namespacepattern
from penstock.model.podpolicy import PodPolicy
from penstock.render import namespaces

QUOTA_CONFLICT = "Conflict"  # reason: concurrent updates of a quota's usage; nothing was created


class Namespaces:
    def __init__(self, kube: protocols.Kube, settings: PodPolicy) -> None:
        self._kube, self._settings = kube, settings
        self._seen: set[str] = set()

    async def ensure(self, owner: launches.Owner, *, anew: bool = False) -> None:
        """Create the owner's namespace if it is missing; with `anew` even if it was seen before."""
        name = namespacepattern.namespace_of(owner, self._settings)
        if name in self._seen and not anew:
            return
        await self._ensure(kinds.NAMESPACES, namespaces.render_namespace(owner, self._settings))
        crashpoints.reach("launch.namespace-bare")
        if self._settings.isolate_namespaces:
            policy = namespaces.render_network_policy()
            await self._ensure(kinds.NETWORK_POLICIES, policy, namespace=name)
        if self._settings.namespace_quota:
            quota = namespaces.render_quota(self._settings.namespace_quota)
            await self._ensure(kinds.RESOURCE_QUOTAS, quota, namespace=name)
        self._seen.add(name)

    async def _ensure(self, kind: kinds.Kind, manifest: namespaces.Manifest, *, namespace: str = "") -> None:
        """Create the object unless one of that name exists, which may be an administrator's own."""
        try:
            await self._kube.create(kind, manifest, namespace=namespace)
        except errors.KubeConflict as error:
            if error.reason == QUOTA_CONFLICT:
                raise errors.KubeUnavailable(f"no {kind} was created: {error.message}") from error
