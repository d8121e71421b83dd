"""The cluster as an administrator sees it: any object by its manifest, in a few blocking calls.

penstockd's own client speaks of pods only and asynchronously; commands of a person apply, read and remove
objects of any kind, one after another.
"""

from __future__ import annotations

import email.utils
import http.client
import os
import ssl
import time
import urllib.parse
from pathlib import Path
from typing import Any

import msgspec

from penstock import errors, wellknown
from penstock.kube import addresses, decoding, incluster, kubeconfig, reading, refusals
from penstock.site import resolving
from penstock.site.schema import Site

SECONDS = 15.0
DELETION_SECONDS = 120.0
POLL_SECONDS = 0.3
MANAGER = "penstock"
IN_CLUSTER = "in-cluster"
_PLURALS = {
    "NetworkPolicy": "networkpolicies",
    "PriorityClass": "priorityclasses",
    "StorageClass": "storageclasses",
}
_CLUSTER_WIDE = (
    "Namespace", "ClusterRole", "ClusterRoleBinding", "PriorityClass", "StorageClass", "PersistentVolume",
)  # fmt: skip
Manifest = dict[str, Any]


class Cluster:
    """One API server, asked with an administrator's rights."""

    def __init__(
        self,
        access: kubeconfig.Access,
        *,
        manager: str = MANAGER,
        origin: str = "its kubeconfig",
        renew: str = "",
    ) -> None:
        """`origin` names where the credentials are, `renew` says how to get new ones."""
        self.manager = manager
        """Who the fields of what we apply belong to."""
        self._access = access
        self._origin, self._renew = origin, renew
        self._address = addresses.parse(access.server)

    def request(
        self, method: str, path: str, *, body: Any = None, kind: str = "application/json"
    ) -> Manifest:
        """The answer, decoded; KubeError with the API's own words when it refuses."""
        connection = self._connect()
        target = self._address.prefix + path
        headers = {"Content-Type": kind, "Accept": "application/json"}
        token = self._access.bearer
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            connection.request(
                method, target, msgspec.json.encode(body) if body is not None else None, headers
            )
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._silent(error) from error
        finally:
            connection.close()
        if response.status == http.HTTPStatus.UNAUTHORIZED:
            raise errors.KubeUnavailable(
                f"the Kubernetes API at {self._access.server} does not accept the credentials in "
                f"{self._origin}: they are expired, revoked or of another cluster",
                status=response.status,
                hint=self._renew,
            )
        if response.status >= http.HTTPStatus.MULTIPLE_CHOICES:
            refusals.raise_for(content, response.status)
        return decoding.decode(content, dict)

    def _silent(self, error: Exception) -> errors.KubeUnavailable:
        return errors.KubeUnavailable(
            f"the Kubernetes API at {self._access.server} does not answer: {error}",
            hint=f"Is it up, and is the server right in {self._origin}?",
        )

    def items(self, path: str) -> list[Manifest]:
        """What is in a list; nothing is known when the answer is none."""
        found = self.request("GET", path).get("items")
        if not isinstance(found, list):
            raise errors.KubeUnavailable(f"the Kubernetes API answered no list for {path}")
        return found

    def server_time(self) -> float:
        """What the API server's clock says, to the second."""
        connection = self._connect()
        try:
            connection.request("GET", f"{self._address.prefix}/version")
            said = connection.getresponse().headers.get("Date", "")
            return email.utils.parsedate_to_datetime(said).timestamp()
        except (OSError, http.client.HTTPException) as error:
            raise self._silent(error) from error
        except (ValueError, TypeError) as error:
            raise errors.KubeUnavailable(f"the Kubernetes API does not tell the time: {error}") from error
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._address.host, self._address.port
        if self._address.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=SECONDS)
        context = self._access.tls or ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)

    def get(self, manifest: Manifest) -> Manifest | None:
        """The live object of that kind and name."""
        try:
            found = self.request("GET", path_of(manifest))
        except errors.KubeNotFound:
            return None
        if not isinstance(found.get("metadata"), dict):
            raise errors.KubeUnavailable(f"the Kubernetes API answered no {manifest['kind']}")
        return found

    def get_settled(self, manifest: Manifest) -> Manifest | None:
        """The live object; one that is being deleted is waited for, for nothing can be made in its place."""
        deadline = time.monotonic() + DELETION_SECONDS
        while True:
            live = self.get(manifest)
            if live is None or not live["metadata"].get("deletionTimestamp"):
                return live
            if time.monotonic() > deadline:
                raise errors.InstallError(
                    f"{manifest['kind']} {manifest['metadata']['name']} is being deleted for too long",
                    hint="Look at what is in it, and try again.",
                )
            time.sleep(POLL_SECONDS)

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Make the object what the manifest says (server-side apply), or only ask whether it would.

        A binding keeps its role for ever: one with another role is deleted and made anew.
        """
        if "roleRef" in manifest and self._has_another_role(manifest):
            if dry_run:
                return manifest  # the API can be asked only when the old one is gone
            self.delete(manifest)
        query = {"fieldManager": self.manager, "force": "true"} | ({"dryRun": "All"} if dry_run else {})
        path = f"{path_of(manifest)}?{urllib.parse.urlencode(query)}"
        return self.request("PATCH", path, body=manifest, kind="application/apply-patch+yaml")

    def _has_another_role(self, manifest: Manifest) -> bool:
        live = self.get(manifest)
        return live is not None and live.get("roleRef") != manifest["roleRef"]

    def delete(self, manifest: Manifest) -> bool:
        """Remove it; False when it was not there."""
        try:
            self.request("DELETE", path_of(manifest))
        except errors.KubeNotFound:
            return False
        return True

    def nodes(self) -> list[Manifest]:
        """Every node."""
        return self.items("/api/v1/nodes")


def manager(site: Site) -> str:
    """Each site is a field manager of its own: giving up its fields leaves what another site says."""
    return f"{MANAGER}-{site.cluster}"


def path_of(manifest: Manifest) -> str:
    """Where the object lives in the API."""
    version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    home = "" if kind in _CLUSTER_WIDE else f"/namespaces/{metadata['namespace']}"
    return f"{base}{home}/{plural}/{metadata['name']}"


def admin_kubeconfig(site: Site) -> Path:
    """The kubeconfig of whoever runs the command: the site's, or their own where they may not read that."""
    own = os.environ.get(wellknown.ENV_KUBECONFIG, "")
    named = site.kubernetes.admin_kubeconfig or own
    if own and os.geteuid() != 0 and not os.access(named, os.R_OK):
        named = own
    return Path(named.partition(":")[0]) if named else Path.home() / ".kube" / "config"


def admin(site: Site) -> Cluster:
    """The cluster with the administrator's rights; in a pod without a kubeconfig, with the pod's."""
    path = admin_kubeconfig(site)
    is_named = site.kubernetes.admin_kubeconfig or os.environ.get(wellknown.ENV_KUBECONFIG)
    if site.kubernetes.access == IN_CLUSTER and not is_named and not path.exists():
        return as_penstockd(site)
    renew = f"Get new credentials: `kubectl --kubeconfig {path} get nodes` must work."
    access = kubeconfig.load(path, context=site.kubernetes.context)
    return Cluster(access, manager=manager(site), origin=str(path), renew=renew)


def as_penstockd(site: Site) -> Cluster:
    """The cluster with penstockd's rights."""
    if site.kubernetes.access == IN_CLUSTER:
        folder = site.kubernetes.service_account_dir
        renew = "Restart the pod: it gets a new token."
        return Cluster(incluster.load(Path(folder)), manager=manager(site), origin=folder, renew=renew)
    path = site.kubernetes.kubeconfig
    renew = f"Remove {path} and run `penstock apply`, which makes a new one; then restart penstockd."
    return Cluster(kubeconfig.load(Path(path)), manager=manager(site), origin=path, renew=renew)


def members(site: Site) -> tuple[resolving.Member, ...]:
    """The cluster's nodes, as node groups need them."""
    return tuple(member(node) for node in admin(site).nodes())


def member(node: Manifest) -> resolving.Member:
    """One node."""
    return resolving.Member(
        name=node["metadata"]["name"],
        labels=node["metadata"].get("labels") or {},
        allocatable=reading.amount(node["status"].get("allocatable") or {}),
    )
