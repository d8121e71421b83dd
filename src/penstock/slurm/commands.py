"""Runs one Slurm command: argv list, fixed locale, a timeout, and errors that distinguish "no" from
"unknown".
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from penstock import errors, wellknown

NEEDED = ("scontrol", "squeue")  # required by every installation
TIMEOUT = 20.0  # seconds; Slurm's commands give up after MessageTimeout, which is 10 by default
_FILTERS = ("SQUEUE_", "SINFO_", "SACCT_", "SCONTROL_", "SCANCEL_")
"""Prefixes of variables that set options of one command: users, partitions, format."""
_UNSET = frozenset({"SLURM_CLUSTERS", "SLURM_WORKING_CLUSTER", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN"})
"""The same for all commands: clusters, and the format of times and task lists."""
_EXACTLY = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
"""Times in seconds since 1970, and every task of an array instead of the first few."""
NO_ANSWER = (
    "Unable to contact slurm controller",
    "Connection refused",
    "Connection timed out",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Unable to connect",
    "Transport endpoint is not connected",
    "Slurm backup controller",
)
"""Beginnings of errors that mean that a daemon did not answer."""
_NOT_YET = "the DB index is being set, try again"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """What a command printed."""

    code: int | None  # None if it did not end in time
    out: str
    err: str

    @property
    def last_line(self) -> str:
        """The last line with a message; scontrol frames alarms with asterisks."""
        lines = [line.strip(" *") for line in (self.out + self.err).split("\n")]
        said = [line for line in lines if line and line != "RESTORE SLURMCTLD DAEMON TO SERVICE"]
        return said[-1] if said else "no answer" if self.code is None else f"exit code {self.code}"


async def run(
    argv: Sequence[str],
    *,
    slurm_conf: str,
    within: float = TIMEOUT,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The command's stdout. SlurmUnavailable if the daemons do not answer, SlurmError if they refuse."""
    full = surroundings(slurm_conf) | _EXACTLY | dict(environment)
    done = await output(argv, environment=full, within=within)
    if done.code is None:
        last = done.err.strip().rpartition("\n")[2]  # without a slurm.conf Slurm looks for one for a minute
        told = f": {last}" if last else ""
        raise errors.SlurmUnavailable(f"{argv[0]} did not answer within {within:g} s{told}")
    if done.code:
        _raise(argv[0], done.err.strip())
    return done.out


async def output(argv: Sequence[str], *, environment: Mapping[str, str], within: float) -> Output:
    """All output, whatever the exit code. SlurmUnavailable if the command cannot be run."""
    process = await _start(argv, environment)
    out, err = bytearray(), bytearray()
    ends = (_read(process.stdout, out), _read(process.stderr, err), process.wait())
    code = None
    try:
        await asyncio.wait_for(asyncio.gather(*ends), within)
        code = process.returncode
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Output(code=code, out=out.decode(errors="replace"), err=err.decode(errors="replace"))


async def _start(argv: Sequence[str], environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
    except OSError as error:  # missing during an upgrade of Slurm, or no process can be created
        raise errors.SlurmUnavailable(f"cannot run {argv[0]}: {error.strerror or error}") from error


def surroundings(slurm_conf: str) -> dict[str, str]:
    """Our environment without variables by which Slurm's commands show less, or other clusters: what they
    hide would count as absent. Without a slurm.conf Slurm looks for its own.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _UNSET and not name.startswith(_FILTERS)
    }
    named = {wellknown.ENV_SLURM_CONF: slurm_conf} if slurm_conf else {}
    return kept | {"LC_ALL": "C"} | named


async def _read(stream: asyncio.StreamReader | None, said: bytearray) -> None:
    """Read in chunks: output counts even if the command does not end."""
    while stream is not None and (chunk := await stream.read(65536)):
        said += chunk


def _raise(program: str, text: str) -> None:
    last = text.split("\n")[-1] if text else "failed with no output"
    unavailable = any(sign in text for sign in NO_ANSWER)
    kind = errors.SlurmUnavailable if unavailable else errors.SlurmError
    raise (errors.SlurmNotYet if _NOT_YET in text else kind)(f"{program}: {last}")
