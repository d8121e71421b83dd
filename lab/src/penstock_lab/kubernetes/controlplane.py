"""etcd and the three daemons of the control plane as components of a lab.

They are stopped in reverse order: an API server without etcd holds its port for most of a minute.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock_lab import component, files, health, ports
from penstock_lab.kubernetes import authority, layout

KEYS = "cluster keys"
FILES = "cluster files"
ETCD = "etcd"
APISERVER = "apiserver"
CONTROLLERS = authority.CONTROLLERS
SCHEDULER = authority.SCHEDULER
LISTEN = ports.LOOPBACK
REQUESTS = {"kube-api-qps": 500, "kube-api-burst": 1000}
"""At the default of 20 requests a second, a thousand pods take a minute."""


def all_components(cluster: layout.Cluster) -> tuple[component.Component, ...]:
    """The control plane, dependencies first."""
    scheduler = _api_client(cluster, SCHEDULER, "kube-scheduler", cluster.scheduler_port, {})
    return (_etcd(cluster), _apiserver(cluster), _controllers(cluster), scheduler)


def _etcd(cluster: layout.Cluster) -> component.Component:
    clients, peers = (f"https://{LISTEN}:{port}" for port in (cluster.etcd_port, cluster.peer_port))
    options: dict[str, object] = {
        "name": "lab",
        "data-dir": cluster.etcd_data,
        "listen-client-urls": clients,
        "advertise-client-urls": clients,
        "listen-peer-urls": peers,
        "initial-advertise-peer-urls": peers,
        "initial-cluster": f"lab={peers}",
        "client-cert-auth": "true",
        "peer-client-cert-auth": "true",
        "unsafe-no-fsync": "true",
        "logger": "zap",
        "log-level": "warn",
    }
    for prefix in ("", "peer-"):
        options[f"{prefix}trusted-ca-file"] = cluster.authority
        options[f"{prefix}cert-file"] = cluster.certificate(authority.ETCD)
        options[f"{prefix}key-file"] = cluster.key(authority.ETCD)
    return component.Component(
        name=ETCD,
        after=(KEYS,),
        argv=(str(cluster.programs / "etcd"), *flags(options)),
        port=cluster.etcd_port,
        check=lambda: health.listens(cluster.etcd_port),
    )


def _apiserver(cluster: layout.Cluster) -> component.Component:
    options: dict[str, object] = {
        "etcd-servers": f"https://{LISTEN}:{cluster.etcd_port}",
        "etcd-cafile": cluster.authority,
        "etcd-certfile": cluster.certificate(authority.ETCD),
        "etcd-keyfile": cluster.key(authority.ETCD),
        "bind-address": LISTEN,
        "advertise-address": LISTEN,
        "secure-port": cluster.api_port,
        "tls-cert-file": cluster.certificate(authority.APISERVER),
        "tls-private-key-file": cluster.key(authority.APISERVER),
        "token-auth-file": cluster.tokens,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "kubelet-client-certificate": cluster.certificate(authority.API_TO_KUBELET),
        "kubelet-client-key": cluster.key(authority.API_TO_KUBELET),
        "kubelet-preferred-address-types": "InternalIP",
        "service-account-key-file": cluster.key(authority.SERVICE_ACCOUNTS),
        "service-account-signing-key-file": cluster.key(authority.SERVICE_ACCOUNTS),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-cluster-ip-range": "10.96.0.0/16",
        "endpoint-reconciler-type": "none",
        "profiling": "false",
        "audit-policy-file": cluster.audit_policy,
        "audit-log-path": cluster.audit_log,
        "audit-log-maxsize": 50,
        "audit-log-maxbackup": 1,
    }
    return component.Component(
        name=APISERVER,
        after=(ETCD, FILES),
        argv=(str(cluster.programs / "kube-apiserver"), *flags(options)),
        port=cluster.api_port,
        check=lambda: health.kubernetes(cluster.authority, cluster.api_port),
        start_seconds=90.0,
        stop_seconds=15.0,
    )


def _controllers(cluster: layout.Cluster) -> component.Component:
    options: dict[str, object] = {
        "service-account-private-key-file": cluster.key(authority.SERVICE_ACCOUNTS),
        "use-service-account-credentials": "true",
        "root-ca-file": cluster.authority,
        "controllers": "*,-cloud-node-lifecycle-controller,-node-ipam-controller,-node-route-controller",
        "node-monitor-grace-period": "20s",
        "flex-volume-plugin-dir": cluster.state / "volume-plugins",
    }
    port = cluster.controllers_port
    return _api_client(cluster, CONTROLLERS, "kube-controller-manager", port, options)


def _api_client(
    cluster: layout.Cluster, name: str, program: str, port: int, more: Mapping[str, object]
) -> component.Component:
    """A daemon that needs only the API server."""
    options: dict[str, object] = {
        "kubeconfig": cluster.kubeconfig(name),
        "authentication-kubeconfig": cluster.kubeconfig(name),
        "authorization-kubeconfig": cluster.kubeconfig(name),
        "bind-address": LISTEN,
        "secure-port": port,
        "leader-elect": "false",
        "profiling": "false",
    }
    return component.Component(
        name=name,
        after=(APISERVER,),
        argv=(str(cluster.programs / program), *flags({**options, **REQUESTS, **more})),
        port=port,
        check=lambda: health.listens(port),
    )


def flags(options: Mapping[str, object]) -> tuple[str, ...]:
    """`--name=value` for each option."""
    return tuple(f"--{name}={value}" for name, value in options.items())


def audit_policy() -> dict[str, object]:
    """Log the requests of penstockd only."""
    rules = [{"level": "Metadata", "users": [authority.PENSTOCKD]}, {"level": "None"}]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": rules,
    }


def prepare(cluster: layout.Cluster) -> None:
    """Make the files that the control plane needs, private to root."""
    for path in (cluster.state, cluster.etcd_data):
        files.directory(path, mode=0o700)
    files.write(cluster.audit_policy, msgspec.json.encode(audit_policy()))
