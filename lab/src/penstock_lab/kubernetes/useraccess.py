"""An ordinary user's read access to the pods of his own jobs.

Each user gets a service account in his own namespace and a private kubeconfig, as a site would hand out. Only
penstockd may create objects.
"""

from __future__ import annotations

from penstock.model import launches, namespacepattern
from penstock.model.podpolicy import PodPolicy
from penstock.render import namespaces, rbac
from penstock_lab import certificates, files, passwd
from penstock_lab.kubernetes import api, layout

ACCOUNT = "owner"
TOKEN_SECONDS = 30 * 24 * 3600


def admit(cluster: layout.Cluster, name: str, *, namespace_pattern: str) -> str:
    """Give this user of the machine read access to his jobs; a second call renews the token."""
    policy = PodPolicy(namespace_pattern=namespace_pattern)
    namespace = namespacepattern.namespace_of(_owner(name), policy)
    admin = api.cluster(cluster.admin_kubeconfig)
    admin.apply(namespaces.render_namespace(_owner(name), policy))
    account = {"name": ACCOUNT, "namespace": namespace}
    admin.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    binding = rbac.render_user_binding(rbac.service_account(ACCOUNT, namespace))
    binding["metadata"]["namespace"] = namespace
    admin.apply(binding)
    token = api.token(cluster.admin_kubeconfig, namespace=namespace, account=ACCOUNT, seconds=TOKEN_SECONDS)
    _write_kubeconfig(cluster, name, namespace, token)
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
