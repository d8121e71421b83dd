"""What an ordinary user may see of the lab's cluster: the pods of his own jobs, and nobody else's.

Each gets a service account in his own namespace and a kubeconfig that only he can read, as a site would hand
out. Nobody but penstockd makes anything there.
"""

from __future__ import annotations

from penstock.model import homes, launches
from penstock.model.podpolicy import PodPolicy
from penstock.render import namespaces, rbac
from penstock_lab import certificates, files, passwd
from penstock_lab.kubernetes import api, joining, layout

ACCOUNT = "owner"
TOKEN_SECONDS = 30 * 24 * 3600


def admit(cluster: layout.Cluster, name: str, *, namespace_pattern: str) -> str:
    """Let this user of the machine look at his jobs; done again, it renews the token."""
    policy = PodPolicy(namespace_pattern=namespace_pattern)
    namespace = homes.namespace_of(_owner(name), policy)
    admin = cluster.admin_kubeconfig
    inside = f"/api/v1/namespaces/{namespace}"
    api.apply(admin, inside, namespaces.render_namespace(_owner(name), policy))
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    api.apply(admin, f"{inside}/serviceaccounts/{ACCOUNT}", account)
    binding = rbac.render_user_binding(rbac.service_account(ACCOUNT, namespace))
    api.apply(admin, f"{joining.RBAC_PATH}/namespaces/{namespace}/rolebindings/{rbac.USER_ROLE}", binding)
    wanted = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
    made = api.request(admin, "POST", f"{inside}/serviceaccounts/{ACCOUNT}/token", body=wanted)
    _write_kubeconfig(cluster, name, namespace, made["status"]["token"])
    return namespace


def _owner(name: str) -> launches.Owner:
    entry = passwd.entry_of(name)
    return launches.Owner(name=name, uid=entry.pw_uid, gid=entry.pw_gid, groups=())


def _write_kubeconfig(cluster: layout.Cluster, name: str, namespace: str, token: str) -> None:
    files.directory(cluster.user_kubeconfigs)
    content = certificates.render_kubeconfig(
        port=cluster.api_port, certificate=cluster.authority.read_bytes(), user=name, token=token
    )
    content = content.replace("    cluster: lab\n", f"    cluster: lab\n    namespace: {namespace}\n")
    place = cluster.user_kubeconfigs / f"{name}.kubeconfig"
    files.write(place, content, mode=0o600, owner=passwd.owner_of(name))
