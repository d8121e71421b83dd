"""Container images made of this machine's own programs, without a registry.

An archive in docker's format is a tar of a few JSON files and a tar per layer; two kinds are written here:
`pause`, which every pod needs, and a userland with a shell and the usual tools, taken from the host's own
files so that nothing has to be downloaded. Archives are the same bytes for the same files.
"""

from __future__ import annotations

import dataclasses
import functools
import grp
import hashlib
import io
import json
import os
import pwd
import re
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.lab import commands
from penstock.lab.kubernetes import layout

PAUSE = "lab/pause:1"
USERLAND = "lab/host-userland:1"
PACKAGES = (
    "bash",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "hostname",
    "mawk",
    "procps",
    "sed",
    "tar",
    "gzip",
)
"""Debian packages whose programs the userland has."""
WHOLE_PACKAGES = (
    "perl-base",
    "python3-minimal",
    "python3*-minimal",
    "libpython3*-minimal",
    "libpython3*-stdlib",
)
"""Those whose programs are nothing without the rest of the package."""
UNWANTED = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/lintian/")
TOP_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
LOCALE = Path("/usr/lib/locale/C.utf8")
"""The one locale that every Debian has: programs complain when theirs is missing."""
SEARCH_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CTR_SECONDS = 120.0
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x[0-9a-f]+\)")


@dataclass(frozen=True, kw_only=True)
class Image:
    """What becomes an image."""

    reference: str
    entrypoint: tuple[str, ...]
    sources: tuple[Path, ...]
    """Files and links of the host, which have the same place in the image."""
    programs: Mapping[str, Path]
    """Files of the host that have another place in the image."""
    links: Mapping[str, str]
    texts: dict[str, str]
    folders: Mapping[str, int]
    """Empty directories with their modes."""


def pause(program: Path) -> Image:
    """The image of the container that holds a pod's namespaces."""
    return Image(
        reference=PAUSE,
        entrypoint=("/pause",),
        sources=(),
        programs={"pause": program},
        links={},
        texts={},
        folders={},
    )


@functools.cache
def userland() -> Image:
    """A shell and the usual tools, with the libraries they need."""
    programs = [path for path in _package_programs() if path.exists()]
    whole = _whole_packages()
    top_links = {path.name: str(path.readlink()) for path in map(Path, TOP_LINKS) if path.is_symlink()}
    return Image(
        reference=USERLAND,
        entrypoint=("/bin/bash",),
        sources=tuple(sorted({*programs, *whole, *libraries_of([*programs, *whole]), *_files_below(LOCALE)})),
        programs={},
        links=top_links | {"usr/bin/awk": "mawk", "usr/bin/sh": "dash"},
        texts={"etc/passwd": _users(), "etc/group": _groups()},
        folders={"tmp": 0o1777, "var/tmp": 0o1777, "root": 0o700, "dev": 0o755, "proc": 0o755, "sys": 0o755},
    )


def tools() -> Image:
    """The same userland by another name, which it knows: a job can see that this image is not that one."""
    plain = userland()
    return dataclasses.replace(plain, texts=plain.texts | {"etc/image": "lab/tools\n"})


def _files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _users() -> str:
    """The host's users by name, as an image of the site would know them."""
    return "".join(f"{u.pw_name}:x:{u.pw_uid}:{u.pw_gid}::{u.pw_dir}:{u.pw_shell}\n" for u in pwd.getpwall())


def _groups() -> str:
    return "".join(f"{g.gr_name}:x:{g.gr_gid}:{','.join(g.gr_mem)}\n" for g in grp.getgrall())


def _whole_packages() -> list[Path]:
    """Interpreters with their libraries; those that are not installed are not missed."""
    found = commands.run(("dpkg-query", "--show", "--showformat=${Package}\n", *WHOLE_PACKAGES), check=False)
    installed = [name for name in found.stdout.split() if name]
    if not installed:
        return []
    listed = commands.run(("dpkg-query", "--listfiles", *installed), check=False).stdout.splitlines()
    wanted = [Path(line) for line in listed if line.startswith("/usr/") and not line.startswith(UNWANTED)]
    return [path for path in wanted if path.is_file() and path.exists()]


def _package_programs() -> list[Path]:
    listed = commands.run(("dpkg-query", "--listfiles", *PACKAGES)).stdout.splitlines()
    return [Path(line) for line in listed if re.fullmatch(r"(/usr)?/s?bin/[^/]+", line)]


def libraries_of(programs: Iterable[Path]) -> set[Path]:
    """Every library that the programs load, and the loader itself."""
    regular = [str(path) for path in programs if not path.is_symlink() and _is_elf(path)]
    answer = subprocess.run(
        ["ldd", *regular], capture_output=True, text=True, timeout=60, check=False, env={"LC_ALL": "C"}
    )
    return {Path(match[1]) for match in _LIBRARY.finditer(answer.stdout)}


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def write_archive(image: Image, target: Path) -> None:
    """Put the image at `target` as a docker archive, in one step."""
    layer, config = parts_of(image)
    digest = hashlib.sha256(layer).hexdigest()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    index = [{"Config": name, "RepoTags": [image.reference], "Layers": [f"{digest}/layer.tar"]}]
    unfinished = target.with_suffix(".new")
    with tarfile.open(unfinished, "w") as archive:
        for path, content in ((f"{digest}/layer.tar", layer), (name, config)):
            _add_bytes(archive, path, content)
        _add_bytes(archive, "manifest.json", json.dumps(index).encode())
    unfinished.replace(target)


def parts_of(image: Image) -> tuple[bytes, bytes]:
    """The image's layer, and the configuration that speaks of it."""
    layer = layer_of(image)
    digest = hashlib.sha256(layer).hexdigest()
    return layer, json.dumps(_config(image, digest), sort_keys=True).encode()


def _config(image: Image, layer_digest: str) -> dict[str, object]:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    return {
        "architecture": machine,
        "os": "linux",
        "config": {"Entrypoint": list(image.entrypoint), "Env": [SEARCH_PATH], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
    }


def layer_of(image: Image) -> bytes:
    """One layer; parents are made as they are needed, and a place is taken only once."""
    stream = io.BytesIO()
    seen: set[str] = set()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as layer:
        for name, mode in image.folders.items():
            _add_folders(layer, name, seen, mode=mode)
        for name, target in image.links.items():
            _add_link(layer, name, target, seen)
        for name, text in image.texts.items():
            _add_folders(layer, str(Path(name).parent), seen)
            _add_bytes(layer, name, text.encode())
        for name, path in image.programs.items():
            _add_file(layer, name, path, seen)
        for path in image.sources:
            _add_source(layer, path, seen)
    return stream.getvalue()


def _add_source(layer: tarfile.TarFile, path: Path, seen: set[str]) -> None:
    """The file at its true place, so that /bin/cat and /usr/bin/cat are one where the host's are."""
    name = str(path.parent.resolve() / path.name).lstrip("/")
    if not path.is_symlink():
        _add_file(layer, name, path, seen)
        return
    _add_link(layer, name, str(path.readlink()), seen)
    target = path.resolve()
    if target.is_file():
        _add_file(layer, str(target).lstrip("/"), target, seen)


def _add_file(layer: tarfile.TarFile, name: str, path: Path, seen: set[str]) -> None:
    if name in seen:
        return
    seen.add(name)
    _add_folders(layer, str(Path(name).parent), seen)
    _add_bytes(layer, name, path.read_bytes(), mode=stat.S_IMODE(path.stat().st_mode) & 0o755)


def _add_link(layer: tarfile.TarFile, name: str, target: str, seen: set[str]) -> None:
    if name in seen:
        return
    seen.add(name)
    _add_folders(layer, str(Path(name).parent), seen)
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    layer.addfile(entry)


def _add_folders(layer: tarfile.TarFile, name: str, seen: set[str], *, mode: int = 0o755) -> None:
    for folder in reversed([Path(name), *Path(name).parents]):
        if str(folder) not in (".", *seen):
            seen.add(str(folder))
            entry = tarfile.TarInfo(str(folder))
            entry.type, entry.mode = tarfile.DIRTYPE, mode if str(folder) == name else 0o755
            layer.addfile(entry)


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def ensure(cluster: layout.Cluster) -> list[Path]:
    """The archives of all images, written unless they are there."""
    cluster.images.mkdir(mode=0o700, exist_ok=True)
    wanted: dict[str, Callable[[], Image]] = {
        "pause": lambda: pause(cluster.programs / "pause"),
        "userland": userland,
    }
    archives = []
    for name, describe in wanted.items():
        archives.append(cluster.images / f"{name}.tar")
        if not archives[-1].exists():
            write_archive(describe(), archives[-1])
    return archives


def load(socket: Path, archives: Iterable[Path], *, snapshotter: str) -> None:
    """Give the images to the containerd behind the socket."""
    ctr = ("ctr", "--address", str(socket), "--namespace", "k8s.io", "images", "import")
    for archive in archives:
        commands.run((*ctr, "--snapshotter", snapshotter, str(archive)), timeout=CTR_SECONDS)


def snapshotter(place: Path) -> str:
    """overlayfs where the file system can carry it; otherwise whole copies, which are slower."""
    kind = commands.run(("stat", "--file-system", "--format=%T", str(place))).stdout.strip()
    known = "overlay" in Path("/proc/filesystems").read_text().split()
    return "overlayfs" if known and kind not in ("overlayfs", "nfs", "fuseblk", "zfs") else "native"
