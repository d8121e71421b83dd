"""slurmctld for whoever changes its files: its release, whether it is up, and letting it read them anew.

What is wrong is an answer here and no error, in the words of Slurm's own programs.
"""

from __future__ import annotations

import shutil

from penstock.model import releases
from penstock.slurm import commands

PING_SECONDS = 15.0
DAEMON_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
"""The PATH of ordinary users often has no folder of daemons."""


async def release() -> releases.Release:
    """Of the slurmctld on this host, as (22, 5)."""
    program = shutil.which("slurmctld") or shutil.which("slurmctld", path=DAEMON_PATH) or "slurmctld"
    return releases.parse(await commands.run((program, "-V"), slurm_conf=""))


async def why_down(slurm_conf: str) -> str:
    """Empty when slurmctld is up."""
    done = await _scontrol("ping", slurm_conf, within=PING_SECONDS)
    return "" if " is UP" in done.out else done.last_line


async def reconfigure(slurm_conf: str) -> str:
    """Let slurmctld and all slurmds read slurm.conf; why that failed, empty when it did not."""
    done = await _scontrol("reconfigure", slurm_conf, within=PING_SECONDS * 2)
    return done.last_line if done.code != 0 else ""


async def why_unreadable(slurm_conf: str) -> str:
    """Empty when Slurm's programs can read this slurm.conf, whether slurmctld answers or not."""
    done = await _scontrol("ping", slurm_conf, within=PING_SECONDS)
    lines = [line.partition("scontrol: ")[2] for line in done.err.split("\n")]
    if not any(line.startswith("fatal:") for line in lines):
        return ""
    return next((line for line in lines if line.startswith("error:")), lines[0])


async def _scontrol(word: str, slurm_conf: str, *, within: float) -> commands.Output:
    environment = commands.surroundings(slurm_conf)
    return await commands.output(("scontrol", word), environment=environment, within=within)
