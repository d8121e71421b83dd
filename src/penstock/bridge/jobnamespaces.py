"""Namespaces of users or accounts, made when the first job needs one, with a quota and closed to pods from
elsewhere.

Most jobs come from users that had jobs before, so what was there once is believed to be there: a pod that is
refused because it is not says so itself, and only then is the API asked again.
"""

from __future__ import annotations

from penstock import crashpoints, errors
from penstock.bridge import protocols
from penstock.kube import kinds
from penstock.model import launches, namespacepattern
from penstock.model.podpolicy import PodPolicy
from penstock.render import namespaces

UNCOUNTED = "Conflict"  # many things are made at once and a quota could not be kept up: nothing was made


class Namespaces:
    """Makes namespaces and remembers which there are."""

    def __init__(self, kube: protocols.Kube, settings: PodPolicy) -> None:
        self._kube = kube
        self._settings = settings
        self._seen: set[str] = set()

    async def ensure(self, owner: launches.Owner, *, anew: bool = False) -> None:
        """Have the owner's namespace; with `anew`, even if it was there before."""
        name = namespacepattern.namespace_of(owner, self._settings)
        if name in self._seen and not anew:
            return
        await self._have(kinds.NAMESPACES, namespaces.render_namespace(owner, self._settings))
        crashpoints.reach("launch.namespace-bare")
        if self._settings.isolate_namespaces:
            policy = namespaces.render_network_policy()
            await self._have(kinds.NETWORK_POLICIES, policy, namespace=name)
        if self._settings.namespace_quota:
            quota = namespaces.render_quota(self._settings.namespace_quota)
            await self._have(kinds.RESOURCE_QUOTAS, quota, namespace=name)
        self._seen.add(name)

    async def _have(self, kind: kinds.Kind, manifest: namespaces.Manifest, *, namespace: str = "") -> None:
        """Make the object unless there is one of that name, which may be an administrator's own."""
        try:
            await self._kube.create(kind, manifest, namespace=namespace)
        except errors.KubeConflict as error:
            if error.reason == UNCOUNTED:
                raise errors.KubeUnavailable(f"no {kind} was made: {error.message}") from error
