"""Runs one Slurm command: argv list, fixed locale and formats, a timeout, and errors that tell "no" from
"cannot be known".
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from penstock import errors

TIMEOUT = 20.0  # seconds; Slurm's own MessageTimeout is 10, after which its commands give up by themselves
_UNSET = (
    "SQUEUE_FORMAT",
    "SQUEUE_FORMAT2",
    "SINFO_FORMAT",
    "SLURM_TIME_FORMAT",
    "SQUEUE_STATES",
    "SQUEUE_PARTITION",
)
_AWAY = (
    "Unable to contact slurm controller",
    "Connection refused",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Connection timed out",
    "Unable to connect",
    "Transport endpoint is not connected",
    "backup controller",
)


async def run(
    argv: Sequence[str],
    *,
    slurm_conf: str,
    within: float = TIMEOUT,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Standard output of the command; SlurmUnavailable when the daemons do not answer, SlurmError when they
    say no.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in _UNSET}
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=inherited | {"LC_ALL": "C", "SLURM_CONF": slurm_conf} | dict(environment),
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), within)
    except TimeoutError:
        raise errors.SlurmUnavailable(f"{argv[0]} did not answer within {within:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        _raise(argv[0], err.decode(errors="replace").strip())
    return out.decode(errors="replace")


def is_away(text: str) -> bool:
    """Whether a command's complaint means that a daemon did not answer."""
    return any(sign in text for sign in _AWAY)


def _raise(program: str, text: str) -> None:
    last = text.splitlines()[-1] if text else "failed without a word"
    if is_away(text):
        raise errors.SlurmUnavailable(f"{program}: {last}")
    raise errors.SlurmError(f"{program}: {last}")
