"""`<lab>/bin/penstock`: the penstock command that made the lab, for all users.

A virtual environment may be where ordinary users cannot read it, such as root's home. For them, the system's
interpreter of the same version runs the same code, if there is one. The code may be unreadable too, as in a
checkout in a temporary folder: then the lab has hard links to its files.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import sys
from pathlib import Path

import click

import penstock
import penstock_lab
from penstock_lab import files, subprocesses


def render(library: Path) -> str:
    """The wrapper's text; links code that not everybody can read into the lab's library."""
    files.remove(library)
    own = Path(sys.executable)  # a symbolic link in a virtual environment: check its target, too
    is_open = open_to_all(own) and open_to_all(own.resolve())
    return render_for(
        interpreter=sys.executable,
        substitute="" if is_open else _substitute(),
        import_path=":".join(_within_reach(place, library) for place in _import_places()),
        needs_import_path="PYTHONPATH" in os.environ,
    )


def render_for(
    *, interpreter: str, substitute: str, import_path: str, needs_import_path: bool = False
) -> str:
    """A POSIX shell script that runs penstock with `interpreter`, or with `substitute` for others.

    The substitute needs PYTHONPATH; the interpreter only if it was started with it.
    """
    own = shlex.quote(interpreter)
    setting = f"export PYTHONPATH={shlex.quote(import_path)}"
    start = f'exec {own} -P -m penstock "$@"'
    lines = ["#!/bin/sh", f"if [ -x {own} ]; then {f'{setting}; ' if needs_import_path else ''}{start}; fi"]
    if substitute:
        lines += [setting, f'exec {shlex.quote(substitute)} -P -m penstock "$@"']
    else:
        lines += [f"echo {shlex.quote(f'penstock: {interpreter} is not accessible to you')} >&2", "exit 126"]
    return "".join(f"{line}\n" for line in lines)


def open_to_all(path: Path) -> bool:
    """Whether any user can execute this file."""
    return all(part.stat().st_mode & stat.S_IXOTH for part in (path, *path.parents))


def _substitute() -> str:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return shutil.which(name, path=subprocesses.search_path()) or ""


def _import_places() -> list[Path]:
    """The import paths of penstock, the lab and their dependencies."""
    modules = (penstock, penstock_lab, click)
    return list(dict.fromkeys(Path(module.__file__ or "").parent.parent for module in modules))


def _within_reach(place: Path, library: Path) -> str:
    """The place itself, or a readable copy of it in the lab."""
    if open_to_all(place):
        return str(place)
    own = library / "-".join(place.parts[-2:])  # both distributions have a folder `src`
    shutil.copytree(place, own, symlinks=True, copy_function=_link)
    for directory, _, _ in os.walk(library):
        Path(directory).chmod(0o755)
    return str(own)


def _link(source: str, target: str) -> None:
    """Hard-link a readable file; else copy it and make the copy readable."""
    if os.lstat(source).st_mode & stat.S_IROTH:
        with contextlib.suppress(OSError):
            os.link(source, target, follow_symlinks=False)
            return
    shutil.copyfile(source, target)
    Path(target).chmod(0o644)
