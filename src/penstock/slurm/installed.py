"""Slurm's version on this machine, from `sbatch --version`.

Used by every `penstock validate`, so without the subprocess module: importing it takes longer than the
call.
"""

from __future__ import annotations

import os
import select
import signal

SECONDS = 2.0


def version(path: str | None = None) -> str:
    """Such as 24.11.5; empty if there is no sbatch or it does not answer."""
    program = _find(os.environ.get("PATH", os.defpath) if path is None else path)
    if not program:
        return ""
    reader, writer = os.pipe()
    try:
        actions = [(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, writer, 2)]
        child = os.posix_spawn(program, [program, "--version"], os.environ, file_actions=actions)
    except OSError:
        os.close(reader)
        return ""
    finally:
        os.close(writer)
    return _answer(child, reader)


def _find(path: str) -> str:
    places = (f"{folder}/sbatch" for folder in path.split(":") if folder)
    return next((place for place in places if os.access(place, os.X_OK)), "")


def _answer(child: int, reader: int) -> str:
    try:
        ready, _, _ = select.select([reader], [], [], SECONDS)
        said = os.read(reader, 200) if ready else b""
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)  # it has printed its version, or it hangs
        os.waitpid(child, 0)
    words = said.decode("ascii", "replace").split()
    return words[-1] if words and words[-1][:1].isdigit() else ""
