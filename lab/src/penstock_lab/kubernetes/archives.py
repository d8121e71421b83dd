"""Container images in OCI's format: layers, configuration and manifest, addressed by digest.

An archive is an OCI layout in a tar file. A layer that the reader already has may be missing from it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEARCH_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
FULL_NAME = "io.containerd.image.name"
"""Annotation with the name under which containerd imports an image."""


@dataclass(frozen=True)
class Blob:
    """Bytes addressed by digest; the content may be missing."""

    digest: str
    size: int
    content: bytes | None = None

    @classmethod
    def of(cls, content: bytes) -> Blob:
        return cls(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content), content)

    def described(self, kind: str) -> dict[str, Any]:
        return {"mediaType": kind, "digest": self.digest, "size": self.size}


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image's entrypoint and its layers, lowest first."""

    entrypoint: tuple[str, ...]
    layers: tuple[Blob, ...]

    @property
    def config(self) -> Blob:
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
        content = {
            "architecture": machine,
            "os": "linux",
            "config": {"Entrypoint": list(self.entrypoint), "Env": [SEARCH_PATH], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in self.layers]},
        }
        return Blob.of(_json(content))

    def manifest(self, kind: str = MANIFEST, config: str = CONFIG, layer: str = LAYER) -> Blob:
        """The manifest, with OCI's or equivalent media types."""
        content = {
            "schemaVersion": 2,
            "mediaType": kind,
            "config": self.config.described(config),
            "layers": [one.described(layer) for one in self.layers],
        }
        return Blob.of(_json(content))


def write(image: Image, reference: str, target: Path) -> None:
    """Write the image as an archive, atomically."""
    unfinished = target.with_suffix(".new")
    with tarfile.open(unfinished, "w") as archive:
        for name, content in _files(image, reference):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    unfinished.replace(target)


def _files(image: Image, reference: str) -> Iterator[tuple[str, bytes]]:
    manifest = image.manifest()
    named = manifest.described(MANIFEST) | {"annotations": {FULL_NAME: reference}}
    yield "oci-layout", _json({"imageLayoutVersion": "1.0.0"})
    yield "index.json", _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]})
    for blob in (*image.layers, image.config, manifest):
        if blob.content is not None:
            yield f"blobs/{blob.digest.replace(':', '/')}", blob.content


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
