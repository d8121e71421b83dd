"""slurmctld for callers that change its files: its release, whether it is up, and making it reread them.

Problems are return values here, not errors, in the words of Slurm's programs.
"""

from __future__ import annotations

import shutil

from penstock.model import releases
from penstock.slurm import commands

PING_SECONDS = 15.0
DAEMON_PATH = "/usr/local/sbin:/usr/sbin:/sbin"  # often missing in the PATH of ordinary users


async def release() -> releases.Release:
    """The release of the slurmctld on this host, such as (22, 5)."""
    program = shutil.which("slurmctld") or shutil.which("slurmctld", path=DAEMON_PATH) or "slurmctld"
    return releases.parse(await commands.run((program, "-V"), slurm_conf=""))


async def why_down(slurm_conf: str) -> str:
    """Empty if slurmctld is up."""
    done = await _scontrol("ping", slurm_conf, within=PING_SECONDS)
    return "" if " is UP" in done.out else done.last_line


async def reconfigure(slurm_conf: str) -> str:
    """Make slurmctld and all slurmds reread slurm.conf; returns why that failed, or ""."""
    done = await _scontrol("reconfigure", slurm_conf, within=PING_SECONDS * 2)
    return done.last_line if done.code != 0 else ""


async def why_unreadable(slurm_conf: str) -> str:
    """Empty if Slurm's programs can read this slurm.conf, whether or not slurmctld answers."""
    done = await _scontrol("ping", slurm_conf, within=PING_SECONDS)
    lines = [line.partition("scontrol: ")[2] for line in done.err.split("\n")]
    if not any(line.startswith("fatal:") for line in lines):
        return ""
    return next((line for line in lines if line.startswith("error:")), lines[0])


async def _scontrol(word: str, slurm_conf: str, *, within: float) -> commands.Output:
    environment = commands.surroundings(slurm_conf)
    return await commands.output(("scontrol", word), environment=environment, within=within)
