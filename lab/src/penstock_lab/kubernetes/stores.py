"""A containerd store with the lab's images, made once and given to every containerd.

Unpacking a userland takes containerd seconds, and a lab has one containerd per node. So it is done once, the
store is cached by content (installed packages, containerd's release), and nodes get it by hard links: its
files are never written again, except the databases, which each node has as a copy. The small layer that
differs between labs is imported into each.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock import errors
from penstock_lab import cache, files, health, subprocesses
from penstock_lab.kubernetes import archives, layout, localimages
from penstock_lab.paths import Below

FILES = "lab/host-files:1"
"""Name of the userland's lower layer, so that containerd does not garbage-collect it."""
NO_REGISTRY = "docker.io"
"""The registry that containerd assumes for names without one."""
SHELL = ("/bin/bash",)
PACKAGES = Path("/var/lib/dpkg/status")
"""The versions of the installed packages."""
CONTENT = "io.containerd.content.v1.content/blobs"
"""containerd's layers by digest, relative to its root."""
CTR_SECONDS = 120.0
START_SECONDS = 30.0
POLL_SECONDS = 0.05


class Lower(msgspec.Struct, frozen=True):
    """Descriptor of the userland's lower layer."""

    digest: str
    size: int


@dataclass(frozen=True)
class Store:
    directory: Path

    containerd_root = Below("containerd")
    layer = Below("files.tar")
    """The userland's files."""
    note = Below("files.json")

    def userland(self, *, whole: bool = False, **more: str) -> archives.Image:
        """The userland with the host's current users; `whole` includes the lower layer's content."""
        lower = msgspec.json.decode(self.note.read_bytes(), type=Lower)
        content = self.layer.read_bytes() if whole else None
        upper = archives.Blob.of(localimages.layer_of(localimages.names(**more)))
        layers = (archives.Blob(lower.digest, lower.size, content), upper)
        return archives.Image(entrypoint=SHELL, layers=layers)


def of(cluster: layout.Cluster) -> Store:
    """The store for the cluster's nodes; makes it if it is not cached."""
    pause, kind = cluster.programs / "pause", snapshotter(cluster.state)
    finished = cache.root(os.environ) / f"images-{fingerprint(pause, kind)}"
    return Store(cache.ensure(finished, lambda target: _make(Store(target), pause, kind)))


def snapshotter(place: Path) -> str:
    """overlayfs if the file system supports it; else native, which copies and is slower."""
    kind = subprocesses.run(("stat", "--file-system", "--format=%T", str(place))).stdout.strip()
    known = "overlay" in Path("/proc/filesystems").read_text().split()
    return "overlayfs" if known and kind not in ("overlayfs", "nfs", "fuseblk", "zfs") else "native"


def fingerprint(pause: Path, kind: str) -> str:
    """Depends on the packages, containerd's release and the code that makes images."""
    release = subprocesses.run(("containerd", "--version")).stdout
    digest = hashlib.sha256(f"{release}\0{kind}\0".encode())
    for path in (PACKAGES, pause, *(Path(module.__file__ or "") for module in (localimages, archives))):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _make(store: Store, pause: Path, kind: str) -> None:
    lower = archives.Blob.of(localimages.layer_of(localimages.userland()))
    files.write(store.layer, lower.content or b"")
    files.write(store.note, msgspec.json.encode(Lower(lower.digest, lower.size)))
    holder = archives.Blob.of(localimages.layer_of(localimages.pause(pause)))
    wanted = {
        localimages.PAUSE: archives.Image(entrypoint=("/pause",), layers=(holder,)),
        FILES: archives.Image(entrypoint=SHELL, layers=(lower,)),
    }
    with (
        tempfile.TemporaryDirectory(prefix="penstock-store-") as folder,
        _containerd(store.containerd_root, Path(folder)) as socket,
    ):
        for reference, image in wanted.items():
            load(socket, image, reference, kind=kind, scratch=Path(folder))


def has_lower_layer(store: Store, root: Path) -> bool:
    """Whether a node's store has the current lower layer: the host's packages may have been upgraded since it
    was filled.
    """
    lower = msgspec.json.decode(store.note.read_bytes(), type=Lower)
    return (root / CONTENT / lower.digest.replace(":", "/")).exists()


def load(socket: Path, image: archives.Image, reference: str, *, kind: str, scratch: Path) -> None:
    archive = scratch / "image.tar"
    archives.write(image, f"{NO_REGISTRY}/{reference}", archive)
    ctr = ("ctr", "--address", str(socket), "--namespace", "k8s.io", "images", "import")
    try:
        subprocesses.run((*ctr, "--snapshotter", kind, str(archive)), timeout=CTR_SECONDS)
    finally:
        archive.unlink()


@contextlib.contextmanager
def _containerd(root: Path, folder: Path) -> Iterator[Path]:
    """A temporary containerd without CRI; yields its socket."""
    socket, log = folder / "c.sock", folder / "log"
    settings = (
        f'version = 2\nroot = "{root}"\nstate = "{folder}/run"\n'
        'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
        f'[grpc]\naddress = "{socket}"\n'
        f'[plugins."io.containerd.internal.v1.opt"]\npath = "{folder}/opt"\n'
    )
    (folder / "containerd.toml").write_text(settings)
    with_us = ("setpriv", "--pdeathsig", "KILL")  # not a component, so `down` would not find it
    argv = [*with_us, "containerd", "--config", str(folder / "containerd.toml")]
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            argv, stdout=output, stderr=output, env=subprocesses.base_environment(), cwd="/"
        )
    try:
        _await(socket, daemon, log)
        yield socket
    finally:
        daemon.terminate()
        try:
            daemon.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(START_SECONDS)


def _await(socket: Path, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while complaint := health.unix_socket(socket):
        if daemon.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip().split("\n")[-1:]
            raise errors.LabError(f"containerd for the images {complaint}", hint=" ".join(said))
        time.sleep(POLL_SECONDS)


def fill(store: Store, root: Path) -> None:
    """Fill a node's store atomically, unless it exists."""
    if root.exists():
        return
    unfinished = root.with_name(f".{root.name}.new")
    files.remove(unfinished)
    _copy(store.containerd_root, unfinished)
    for database in store.containerd_root.glob("io.containerd.*/*.db"):
        own = unfinished / database.relative_to(store.containerd_root)
        own.unlink()
        shutil.copy2(database, own)
    unfinished.rename(root)


def _copy(source: Path, target: Path) -> None:
    """Hard links; copies if the lab is on another file system."""
    copy = ("cp", "--archive", "--no-target-directory")
    if subprocesses.run((*copy, "--link", str(source), str(target)), check=False).returncode != 0:
        files.remove(target)
        subprocesses.run((*copy, "--reflink=auto", str(source), str(target)), timeout=CTR_SECONDS)
