"""The site's image registry: Debian's docker-registry on loopback.

Sites use images of their own registry, such as `nas-hub.local:5407/lab/tools:1`. In the lab, containerd maps
that host name to the lab's registry, so images are really pulled, without DNS.
"""

from __future__ import annotations

import http.client
import json
import urllib.parse

from penstock import errors
from penstock_lab import component, files, health, ports
from penstock_lab.kubernetes import archives, controlplane, layout, stores

REGISTRY = "registry"
PUSHED = "registry images"
HOST = "nas-hub.local:5407"
NAME = "lab/tools"
TAG = "1"
IMAGE = f"{HOST}/{NAME}:{TAG}"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar"
SECONDS = 30.0


def all_components(cluster: layout.Cluster) -> tuple[component.Component, ...]:
    return (
        component.Component(
            name=REGISTRY,
            after=(controlplane.FILES,),
            argv=("docker-registry", "serve", str(cluster.etc / "registry.yaml")),
            port=cluster.registry_port,
            check=lambda: health.listens(cluster.registry_port),
        ),
    )


def prepare(cluster: layout.Cluster) -> None:
    """Write the registry's settings, and containerd's mapping of the host name to it."""
    files.directory(cluster.registry, mode=0o700)
    files.write(cluster.etc / "registry.yaml", render_settings(cluster))
    for folder in (cluster.registries, cluster.registries / HOST):
        files.directory(folder)
    files.write(cluster.registries / HOST / "hosts.toml", render_hosts(cluster))


def render_settings(cluster: layout.Cluster) -> str:
    """docker-registry's configuration, as JSON, which is also YAML."""
    settings = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(cluster.registry)}},
        "http": {"addr": f"{ports.LOOPBACK}:{cluster.registry_port}"},
    }
    return json.dumps(settings, indent=2) + "\n"


def render_hosts(cluster: layout.Cluster) -> str:
    """containerd's hosts.toml of this registry."""
    address = f"http://{ports.LOOPBACK}:{cluster.registry_port}"
    return f'server = "{address}"\n\n[host."{address}"]\ncapabilities = ["pull", "resolve"]\n'


def push(cluster: layout.Cluster) -> str:
    """Push the image; blobs that exist are not sent again."""
    image = stores.of(cluster).userland(whole=True, image=f"{NAME}\n")
    for blob in (*image.layers, image.config):
        _send(cluster, blob)
    manifest = image.manifest(MANIFEST, CONFIG, LAYER)
    _call(cluster, "PUT", f"/v2/{NAME}/manifests/{TAG}", manifest.content or b"", kind=MANIFEST)
    return IMAGE


def _send(cluster: layout.Cluster, blob: archives.Blob) -> None:
    status, _ = _call(cluster, "HEAD", f"/v2/{NAME}/blobs/{blob.digest}")
    if status == http.HTTPStatus.NOT_FOUND:
        place = urllib.parse.urlsplit(_call(cluster, "POST", f"/v2/{NAME}/blobs/uploads/")[1])
        query = f"{place.query}&digest={urllib.parse.quote(blob.digest)}"
        _call(cluster, "PUT", f"{place.path}?{query}", blob.content or b"")


def _call(
    cluster: layout.Cluster,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    kind: str = "application/octet-stream",
) -> tuple[int, str]:
    """The response's status and Location header. Only HEAD may fail."""
    connection = http.client.HTTPConnection(ports.LOOPBACK, cluster.registry_port, timeout=SECONDS)
    try:
        connection.request(method, path, body, {"Content-Type": kind})
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise errors.LabError(f"the lab's registry does not answer: {error}") from error
    finally:
        connection.close()
    status = answer.status
    if status >= http.HTTPStatus.BAD_REQUEST and method != "HEAD":
        raise errors.LabError(f"the lab's registry answered {status} to {method} {path.partition('?')[0]}")
    return status, answer.headers.get("Location", "")
