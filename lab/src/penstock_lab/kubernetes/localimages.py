"""Container images made of this machine's own programs, without a registry.

`pause` is what every pod needs; the userland has a shell and the usual tools, taken from the host's own files
so that nothing has to be downloaded. Its files are a layer that all labs of the machine share; whom the host
knows by name differs from lab to lab and is a small layer on top. The same files are the same bytes.
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
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x[0-9a-f]+\)")


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What becomes a layer."""

    sources: tuple[Path, ...] = ()
    """Files and links of the host, which have the same place in the image."""
    programs: Mapping[str, Path] = field(default_factory=dict)
    """Files of the host that have another place in the image."""
    links: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, int] = field(default_factory=dict)
    """Empty directories with their modes."""


def pause(program: Path) -> Contents:
    """The one file of the container that holds a pod's namespaces."""
    return Contents(programs={"pause": program})


def userland() -> Contents:
    """A shell and the usual tools, with the libraries they need: the same for every lab of this machine."""
    programs = [path for path in _package_programs() if path.exists()]
    whole = _whole_packages()
    top_links = {path.name: str(path.readlink()) for path in map(Path, TOP_LINKS) if path.is_symlink()}
    return Contents(
        sources=tuple(sorted({*programs, *whole, *libraries_of([*programs, *whole]), *_files_below(LOCALE)})),
        links=top_links | {"usr/bin/awk": "mawk", "usr/bin/sh": "dash"},
        folders={"tmp": 0o1777, "var/tmp": 0o1777, "root": 0o700, "dev": 0o755, "proc": 0o755, "sys": 0o755},
    )


def names(**more: str) -> Contents:
    """Whom the host knows now, as an image of the site would; and files such as `image` in /etc."""
    texts = {"etc/passwd": _users(), "etc/group": _groups()}
    return Contents(texts=texts | {f"etc/{name}": text for name, text in more.items()})


def _files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _users() -> str:
    """The host's users by name, as an image of the site would know them."""
    return "".join(f"{u.pw_name}:x:{u.pw_uid}:{u.pw_gid}::{u.pw_dir}:{u.pw_shell}\n" for u in pwd.getpwall())


def _groups() -> str:
    return "".join(f"{g.gr_name}:x:{g.gr_gid}:{','.join(g.gr_mem)}\n" for g in grp.getgrall())


def _whole_packages() -> list[Path]:
    """Interpreters with their libraries; those that are not installed are not missed."""
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
    """Every library that the programs load, and the loader itself."""
    regular = [str(path) for path in programs if not path.is_symlink() and _is_elf(path)]
    answer = subprocess.run(
        ["ldd", *regular], capture_output=True, text=True, timeout=60, check=False, env={"LC_ALL": "C"}
    )
    return {Path(match[1]) for match in _LIBRARY.finditer(answer.stdout)}


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def layer_of(contents: Contents) -> bytes:
    """One layer; parents are made as they are needed, and a place is taken only once."""
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
