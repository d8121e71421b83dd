"""The fault proxy as a part of a lab: its certificate, penstockd's way through it, its daemon."""

from __future__ import annotations

import sys

from penstock.kube import kubeconfig
from penstock_lab import certificates, component, directories, files, health, passwd, paths, spec, taskgraph

NAME = "faultproxy"
ACCESS = "fault proxy access"


def all_steps(
    place: paths.LabPaths, lab: spec.LabSpec, *, after: tuple[str, ...]
) -> tuple[taskgraph.Step, ...]:
    """What the proxy needs, once the cluster has let penstockd in."""
    if not lab.fault_proxy:
        return ()
    return (taskgraph.Step(name=ACCESS, after=after, run=lambda: _write_access(place, lab)),)


def all_components(place: paths.LabPaths, lab: spec.LabSpec) -> tuple[component.Component, ...]:
    """The proxy, in labs that have one."""
    if not lab.fault_proxy:
        return ()
    options = {
        "--port": lab.fault_proxy_port,
        "--kubeconfig": place.penstockd_kubeconfig,
        "--tls-cert": place.fault_proxy_certificate,
        "--tls-key": place.fault_proxy_key,
        "--control": place.fault_proxy_control,
    }
    words = (str(word) for option in options.items() for word in option)
    return (
        component.Component(
            name=NAME,
            after=(ACCESS,),
            argv=(sys.executable, "-m", "penstock_lab.faultproxy", *words),
            environment=component.python_environment(),
            port=lab.fault_proxy_port,
            check=lambda: health.unix_socket(place.fault_proxy_control),
        ),
    )


def _write_access(place: paths.LabPaths, lab: spec.LabSpec) -> str:
    """penstockd's own token, sent to the proxy's address."""
    certificates.ensure_certificate(key=place.fault_proxy_key, certificate=place.fault_proxy_certificate)
    content = certificates.render_kubeconfig(
        port=lab.fault_proxy_port,
        certificate=place.fault_proxy_certificate.read_bytes(),
        user="penstockd",
        token=kubeconfig.load(place.penstockd_kubeconfig).bearer,
    )
    files.write(place.fault_proxy_kubeconfig, content, mode=0o600, owner=passwd.owner_of(directories.SLURM))
    return "ready"
