"""Makes slurmctld reread its configuration, by reconfigure or restart; errors quote its log."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from pathlib import Path

from penstock import errors
from penstock.install import facts
from penstock.site.schema import Site
from penstock.slurm import commands, controller

RESTART_SECONDS = 120.0
UP_SECONDS = 60.0
FATAL_SECONDS = 5.0
"""Grace after a fatal error in slurmctld's log: it has ended, but a supervisor may restart it."""
POLL_SECONDS = 0.3
LOG_BYTES = 64 * 1024
_STAMP = re.compile(r"^\[[^\]]*\]\s*")


class Controller:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._log_start = 0
        self._reconfigure_failed = False

    def restart(self) -> None:
        """Restart slurmctld and wait until it answers. Raises InstallError with the reason."""
        self._log_start = self._log_size()
        argv = self._site.slurm.restart
        done = run(argv, slurm_conf=self._site.slurm.conf, seconds=RESTART_SECONDS)
        if done.code != 0:
            raise errors.InstallError(
                f"`{' '.join(argv)}` failed: {self._cause(done.last_line)}",
                hint="It is `slurm.restart` of the site file.",
            )
        self._wait()
        asyncio.run(controller.reconfigure(self._site.slurm.conf))  # for the slurmds
        self._wait()

    def reconfigure(self) -> None:
        """Reread partitions; after a failure, the rollback uses a restart."""
        if self._reconfigure_failed:
            self.restart()
            return
        self._log_start = self._log_size()
        try:
            problem = asyncio.run(controller.reconfigure(self._site.slurm.conf))
            if problem:
                raise errors.InstallError(f"`scontrol reconfigure` failed: {self._cause(problem)}")
            self._wait()
        except errors.PenstockError:
            self._reconfigure_failed = True
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + UP_SECONDS
        while True:
            problem = asyncio.run(controller.why_down(self._site.slurm.conf))
            if not problem:
                return
            if self._logged("fatal: "):
                deadline = min(deadline, time.monotonic() + FATAL_SECONDS)
            if time.monotonic() >= deadline:
                raise errors.InstallError(
                    f"slurmctld did not start: {self._cause(problem)}",
                    hint=f"Its log is {self._log}, or `journalctl -u slurmctld`.",
                )
            time.sleep(POLL_SECONDS)

    # -- its log ---------------------------------------------------------------------------------------------
    @property
    def _log(self) -> Path:
        try:
            named = facts.read_conf(self._site).get("SlurmctldLogFile")
        except errors.PenstockError:
            named = ""
        return Path(named or f"{self._site.slurm.log_dir}/slurmctld.log")

    def _log_size(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def _logged(self, word: str) -> str:
        """The last line of the log with this word since the restart."""
        try:
            with self._log.open("rb") as stream:
                size = stream.seek(0, 2)
                start = self._log_start if size >= self._log_start else 0  # else it was rotated
                stream.seek(max(start, size - LOG_BYTES))
                lines = stream.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((_STAMP.sub("", line) for line in reversed(lines) if word in line), "")

    def _cause(self, problem: str) -> str:
        """The fatal error in the log, else `problem` with the last error, which may be an unrelated one."""
        error = self._logged("error: ")
        beside = f" (last error in its log: {error.partition('error: ')[2]})" if error else ""
        return self._logged("fatal: ") or f"{problem}{beside}"


def run(argv: Sequence[str], *, slurm_conf: str, seconds: float) -> commands.Output:
    """Run a command of the site's with the environment of Slurm's commands."""
    try:
        environment = commands.surroundings(slurm_conf)
        return asyncio.run(commands.output(argv, environment=environment, within=seconds))
    except errors.SlurmUnavailable as error:
        raise errors.InstallError(error.message) from error
