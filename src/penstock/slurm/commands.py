"""Runs one Slurm command: argv list, fixed locale and formats, a timeout, and errors that tell "no" from
"cannot be known".
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from penstock import errors, wellknown

NEEDED = ("scontrol", "squeue")
"""What an installation cannot do without."""
TIMEOUT = 20.0  # seconds; Slurm's own MessageTimeout is 10, after which its commands give up by themselves
_FILTERS = ("SQUEUE_", "SINFO_", "SACCT_", "SCONTROL_", "SCANCEL_")
"""How variables begin that stand for options of one command: whose jobs, which partitions, what format."""
_UNSET = frozenset({"SLURM_CLUSTERS", "SLURM_WORKING_CLUSTER", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN"})
"""The same of all commands: which clusters, and how times and lists of tasks are written."""
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
"""How a complaint begins that means that a daemon did not answer."""
_NOT_YET = "the DB index is being set, try again"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """What a command has said."""

    code: int | None
    """Its exit code; None when it did not end in time."""
    out: str
    err: str

    @property
    def last_line(self) -> str:
        """The last that says something; scontrol frames its alarms with asterisks."""
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
    """Standard output of the command; SlurmUnavailable when the daemons do not answer, SlurmError when they
    say no.
    """
    full = surroundings(slurm_conf) | _EXACTLY | dict(environment)
    done = await output(argv, environment=full, within=within)
    if done.code is None:
        raise errors.SlurmUnavailable(_late(argv[0], within, done.err.strip()))
    if done.code:
        _raise(argv[0], done.err.strip())
    return done.out


async def output(argv: Sequence[str], *, environment: Mapping[str, str], within: float) -> Output:
    """All that the command says, whatever its exit code; SlurmUnavailable when it cannot be run."""
    process = await _start(argv, environment)
    out, err = bytearray(), bytearray()
    ends = (_hear(process.stdout, out), _hear(process.stderr, err), process.wait())
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
    except OSError as error:  # not there while Slurm is being upgraded, or no process to be had
        raise errors.SlurmUnavailable(f"cannot run {argv[0]}: {error.strerror or error}") from error


def surroundings(slurm_conf: str) -> dict[str, str]:
    """Our own variables without those by which a person makes Slurm's commands show less, or other clusters:
    what is hidden from us would count as not there. Without a slurm.conf Slurm looks for its own.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _UNSET and not name.startswith(_FILTERS)
    }
    named = {wellknown.ENV_SLURM_CONF: slurm_conf} if slurm_conf else {}
    return kept | {"LC_ALL": "C"} | named


async def _hear(stream: asyncio.StreamReader | None, said: bytearray) -> None:
    """All of it, bit by bit: what a command said counts although it does not end."""
    while stream is not None and (chunk := await stream.read(65536)):
        said += chunk


def _late(program: str, within: float, text: str) -> str:
    """With its last complaint: without a slurm.conf Slurm's commands look for one for a minute."""
    told = ": " + text.rpartition("\n")[2] if text else ""
    return f"{program} did not answer within {within:g} s{told}"


def _raise(program: str, text: str) -> None:
    last = text.split("\n")[-1] if text else "failed without a word"
    if _NOT_YET in text:
        raise errors.SlurmNotYet(f"{program}: {last}")
    if any(sign in text for sign in NO_ANSWER):
        raise errors.SlurmUnavailable(f"{program}: {last}")
    raise errors.SlurmError(f"{program}: {last}")
