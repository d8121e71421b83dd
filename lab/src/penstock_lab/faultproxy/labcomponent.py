"""The fault proxy as a component of a lab: its certificate, penstockd's kubeconfig, its daemon."""

from __future__ import annotations

import sys

from penstock.kube import kubeconfig
from penstock_lab import certificates, component, directories, files, health, passwd, paths, spec, taskgraph

NAME = "faultproxy"
ACCESS = "fault proxy access"


def all_steps(
    place: paths.LabPaths, lab: spec.LabSpec, *, after: tuple[str, ...]
) -> tuple[taskgraph.Step, ...]:
    """The step that writes the proxy's files, once penstockd's own kubeconfig exists."""
    if not lab.fault_proxy:
        return ()
    return (taskgraph.Step(name=ACCESS, after=after, run=lambda: _write_access(place, lab)),)


def all_components(place: paths.LabPaths, lab: spec.LabSpec) -> tuple[component.Component, ...]:
    """The proxy's daemon, if the lab has one."""
    if not lab.fault_proxy:
        return ()
    options = {
        "--port": lab.fault_proxy_port,
        "--kubeconfig": place.penstockd_kubeconfig,
        "--tls-cert": place.fault_proxy_certificate,
        "--tls-key": place.fault_proxy_key,
        "--control": place.fault_proxy_control,
    }
    return (
        component.Component(
            name=NAME,
            after=(ACCESS,),
            argv=(sys.executable, "-m", "penstock_lab.faultproxy", *component.words(options)),
            environment=component.python_environment(),
            port=lab.fault_proxy_port,
            check=lambda: health.unix_socket(place.fault_proxy_control),
        ),
    )


def _write_access(place: paths.LabPaths, lab: spec.LabSpec) -> str:
    """penstockd's kubeconfig with the proxy's address and penstockd's own token."""
    certificates.ensure_certificate(key=place.fault_proxy_key, certificate=place.fault_proxy_certificate)
    content = certificates.render_kubeconfig(
        port=lab.fault_proxy_port,
        certificate=place.fault_proxy_certificate.read_bytes(),
        user="penstockd",
        token=kubeconfig.load(place.penstockd_kubeconfig).bearer,
    )
    files.write(place.fault_proxy_kubeconfig, content, mode=0o600, owner=passwd.owner_of(directories.SLURM))
    return "ready"
