"""Container images made from this machine's own programs, without a registry.

`pause` is needed by every pod; the userland has a shell and the usual tools, copied from the host so that
nothing is downloaded. Its files are a layer shared by all labs of the machine; the host's user names differ
between labs and are a small layer on top. Layers are reproducible: the same files give the same bytes.
"""

from __future__ import annotations

import grp
import io
import pwd
import re
import stat
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock_lab import subprocesses

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
"""Debian packages whose programs are in the userland."""
WHOLE_PACKAGES = (
    "perl-base",
    "python3-minimal",
    "python3*-minimal",
    "libpython3*-minimal",
    "libpython3*-stdlib",
)
"""Debian packages that are included completely."""
UNWANTED = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/lintian/")
TOP_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
LOCALE = Path("/usr/lib/locale/C.utf8")
"""The one locale that every Debian has; programs warn if their locale is missing."""
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x[0-9a-f]+\)")


@dataclass(frozen=True, kw_only=True)
class Contents:
    sources: tuple[Path, ...] = ()
    """Files and symbolic links of the host, at the same path in the image."""
    programs: Mapping[str, Path] = field(default_factory=dict)
    """Files of the host, by their path in the image."""
    links: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, int] = field(default_factory=dict)
    """Empty directories with their modes."""


def pause(program: Path) -> Contents:
    """The container that holds a pod's namespaces."""
    return Contents(programs={"pause": program})


def userland() -> Contents:
    """A shell and the usual tools with their libraries; the same for every lab of this machine."""
    programs = [path for path in _package_programs() if path.exists()]
    whole = _whole_packages()
    locale = [path for path in LOCALE.rglob("*") if path.is_file()]
    top_links = {path.name: str(path.readlink()) for path in map(Path, TOP_LINKS) if path.is_symlink()}
    return Contents(
        sources=tuple(sorted({*programs, *whole, *libraries_of([*programs, *whole]), *locale})),
        links=top_links | {"usr/bin/awk": "mawk", "usr/bin/sh": "dash"},
        folders={"tmp": 0o1777, "var/tmp": 0o1777, "root": 0o700, "dev": 0o755, "proc": 0o755, "sys": 0o755},
    )


def names(**more: str) -> Contents:
    """The host's current users and groups, and more files in /etc, such as `image`."""
    texts = {"etc/passwd": _users(), "etc/group": _groups()}
    return Contents(texts=texts | {f"etc/{name}": text for name, text in more.items()})


def _users() -> str:
    return "".join(f"{u.pw_name}:x:{u.pw_uid}:{u.pw_gid}::{u.pw_dir}:{u.pw_shell}\n" for u in pwd.getpwall())


def _groups() -> str:
    return "".join(f"{g.gr_name}:x:{g.gr_gid}:{','.join(g.gr_mem)}\n" for g in grp.getgrall())


def _whole_packages() -> list[Path]:
    """Interpreters with their libraries, as far as they are installed."""
    found = subprocesses.run(
        ("dpkg-query", "--show", "--showformat=${Package}\n", *WHOLE_PACKAGES), check=False
    )
    installed = [name for name in found.stdout.split() if name]
    if not installed:
        return []
    listed = subprocesses.run(("dpkg-query", "--listfiles", *installed), check=False).stdout.split("\n")
    wanted = [Path(line) for line in listed if line.startswith("/usr/") and not line.startswith(UNWANTED)]
    return [path for path in wanted if path.is_file() and path.exists()]


def _package_programs() -> list[Path]:
    listed = subprocesses.run(("dpkg-query", "--listfiles", *PACKAGES)).stdout.split("\n")
    return [Path(line) for line in listed if re.fullmatch(r"(/usr)?/s?bin/[^/]+", line)]


def libraries_of(programs: Iterable[Path]) -> set[Path]:
    """Every library that the programs load, and the dynamic loader."""
    regular = [str(path) for path in programs if not path.is_symlink() and _is_elf(path)]
    answer = subprocess.run(
        ["ldd", *regular], capture_output=True, text=True, timeout=60, check=False, env={"LC_ALL": "C"}
    )
    return {Path(match[1]) for match in _LIBRARY.finditer(answer.stdout)}


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def layer_of(contents: Contents) -> bytes:
    """A layer as a tar; parents are added as needed, and the first entry of a path wins."""
    stream = io.BytesIO()
    seen: set[str] = set()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as layer:
        for name, mode in contents.folders.items():
            _add_folders(layer, name, seen, mode=mode)
        for name, target in contents.links.items():
            _add_link(layer, name, target, seen)
        for name, text in contents.texts.items():
            _add_folders(layer, str(Path(name).parent), seen)
            _add_bytes(layer, name, text.encode())
        for name, path in contents.programs.items():
            _add_file(layer, name, path, seen)
        for path in contents.sources:
            _add_source(layer, path, seen)
    return stream.getvalue()


def _add_source(layer: tarfile.TarFile, path: Path, seen: set[str]) -> None:
    """Add the file at its resolved path: /bin/cat and /usr/bin/cat are one file if they are on the host."""
    name = str(path.parent.resolve() / path.name).lstrip("/")
    if not path.is_symlink():
        _add_file(layer, name, path, seen)
        return
    _add_link(layer, name, str(path.readlink()), seen)
    target = path.resolve()
    if target.is_file():
        _add_file(layer, str(target).lstrip("/"), target, seen)


def _add_file(layer: tarfile.TarFile, name: str, path: Path, seen: set[str]) -> None:
    if name not in seen:
        _add_folders(layer, str(Path(name).parent), seen)
        seen.add(name)
        _add_bytes(layer, name, path.read_bytes(), mode=stat.S_IMODE(path.stat().st_mode) & 0o755)


def _add_link(layer: tarfile.TarFile, name: str, target: str, seen: set[str]) -> None:
    if name not in seen:
        _add_folders(layer, str(Path(name).parent), seen)
        seen.add(name)
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
