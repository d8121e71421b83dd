"""`<lab>/bin/penstock`: the program that made the lab, under its plain name, for all who have it on PATH.

The interpreter of a virtual environment may live where ordinary users cannot go, such as root's home. For
them the system's interpreter of the same version runs the same code, when there is one. The code itself may
be out of their reach, too, as in a checkout in a temporary folder: then the lab has links to its files.
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
    """The wrapper's text; code that not everybody can reach is linked into the lab's library first."""
    files.remove(library)
    return render_for(
        interpreter=sys.executable,
        substitute="" if _interpreter_is_open(Path(sys.executable)) else _substitute(),
        import_path=":".join(_within_reach(place, library) for place in _import_places()),
        needs_import_path="PYTHONPATH" in os.environ,
    )


def render_for(
    *, interpreter: str, substitute: str, import_path: str, needs_import_path: bool = False
) -> str:
    """A POSIX shell script that runs penstock with `interpreter`, or `substitute` for those who cannot.

    The substitute must be told where to import from; the interpreter only if it was told itself.
    """
    own = shlex.quote(interpreter)
    setting = f"export PYTHONPATH={shlex.quote(import_path)}"
    start = f'exec {own} -P -m penstock "$@"'
    lines = ["#!/bin/sh", f"if [ -x {own} ]; then {f'{setting}; ' if needs_import_path else ''}{start}; fi"]
    if substitute:
        lines += [setting, f'exec {shlex.quote(substitute)} -P -m penstock "$@"']
    else:
        lines += [f"echo {shlex.quote(f'penstock: {interpreter} is out of reach for you')} >&2", "exit 126"]
    return "".join(f"{line}\n" for line in lines)


def open_to_all(path: Path) -> bool:
    """Whether any user may reach and execute this file."""
    return all(part.stat().st_mode & stat.S_IXOTH for part in (path, *path.parents))


def _interpreter_is_open(interpreter: Path) -> bool:
    """Both the link in a virtual environment, by which the wrapper calls it, and what it leads to."""
    return open_to_all(interpreter) and open_to_all(interpreter.resolve())


def _substitute() -> str:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return shutil.which(name, path=subprocesses.search_path()) or ""


def _import_places() -> list[Path]:
    """Where penstock, the lab and what they need are imported from."""
    modules = (penstock, penstock_lab, click)
    return list(dict.fromkeys(Path(module.__file__ or "").parent.parent for module in modules))


def _within_reach(place: Path, library: Path) -> str:
    """The place itself, or the lab's own with the same files."""
    if open_to_all(place):
        return str(place)
    own = library / "-".join(place.parts[-2:])  # two distributions are each in a folder `src`
    shutil.copytree(place, own, symlinks=True, copy_function=_link)
    for directory, _, _ in os.walk(library):
        Path(directory).chmod(0o755)
    return str(own)


def _link(source: str, target: str) -> None:
    """The same file under another name; a copy that all may read where that cannot be."""
    if os.lstat(source).st_mode & stat.S_IROTH:
        with contextlib.suppress(OSError):
            os.link(source, target, follow_symlinks=False)
            return
    shutil.copyfile(source, target)
    Path(target).chmod(0o644)
