"""The site's registry, played by Debian's docker-registry on loopback.

Sites name images by their own registry, such as `nas-hub.local:5407/lab/tools:1`. Here that name leads every
containerd to a registry of the lab's, so that a job's image is really pulled, and no name is looked up.
"""

from __future__ import annotations

import http.client
import json
import urllib.parse

from penstock import errors
from penstock_lab import component, files, ports
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
    """The registry itself."""
    return (
        component.Component(
            name=REGISTRY,
            after=(controlplane.FILES,),
            argv=("docker-registry", "serve", str(cluster.etc / "registry.yaml")),
            port=cluster.registry_port,
            check=lambda: controlplane.listens(cluster.registry_port),
        ),
    )


def prepare(cluster: layout.Cluster) -> None:
    """The registry's settings, and the note that tells every containerd where the site's name leads."""
    files.directory(cluster.registry, mode=0o700)
    files.write(cluster.etc / "registry.yaml", render_settings(cluster))
    for folder in (cluster.registries, cluster.registries / HOST):
        files.directory(folder)
    files.write(cluster.registries / HOST / "hosts.toml", render_hosts(cluster))


def render_settings(cluster: layout.Cluster) -> str:
    """docker-registry's own file; JSON is YAML, too."""
    settings = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(cluster.registry)}},
        "http": {"addr": f"{ports.LOOPBACK}:{cluster.registry_port}"},
    }
    return json.dumps(settings, indent=2) + "\n"


def render_hosts(cluster: layout.Cluster) -> str:
    """containerd's file for one registry."""
    address = f"http://{ports.LOOPBACK}:{cluster.registry_port}"
    return f'server = "{address}"\n\n[host."{address}"]\ncapabilities = ["pull", "resolve"]\n'


def push(cluster: layout.Cluster) -> str:
    """Put the image there; what is there already is not sent again."""
    image = stores.of(cluster).userland(whole=True, image=f"{NAME}\n")
    for blob in (*image.layers, image.config):
        _send(cluster, blob)
    manifest = image.manifest(MANIFEST, CONFIG, LAYER)
    _call(cluster, "PUT", f"/v2/{NAME}/manifests/{TAG}", manifest.content or b"", kind=MANIFEST)
    return IMAGE


def _send(cluster: layout.Cluster, blob: archives.Blob) -> None:
    status, _ = _ask(cluster, "HEAD", f"/v2/{NAME}/blobs/{blob.digest}")
    if status == http.HTTPStatus.NOT_FOUND:
        place = urllib.parse.urlsplit(_call(cluster, "POST", f"/v2/{NAME}/blobs/uploads/"))
        query = f"{place.query}&digest={urllib.parse.quote(blob.digest)}"
        _call(cluster, "PUT", f"{place.path}?{query}", blob.content or b"")


def _call(
    cluster: layout.Cluster,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    kind: str = "application/octet-stream",
) -> str:
    """Where the registry says to go on."""
    status, location = _ask(cluster, method, path, body, kind=kind)
    if status >= http.HTTPStatus.BAD_REQUEST:
        raise errors.LabError(f"the lab's registry answered {status} to {method} {path.partition('?')[0]}")
    return location


def _ask(
    cluster: layout.Cluster,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    kind: str = "application/octet-stream",
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(ports.LOOPBACK, cluster.registry_port, timeout=SECONDS)
    try:
        connection.request(method, path, body, {"Content-Type": kind})
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers.get("Location", "")
    except (OSError, http.client.HTTPException) as error:
        raise errors.LabError(f"the lab's registry does not answer: {error}") from error
    finally:
        connection.close()
