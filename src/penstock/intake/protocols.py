"""What the intake may ask of Slurm."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from penstock.slurm import answers, spools, submissions, tokensearch


class Slurm(Protocol):
    """Submits once, and finds again what was submitted."""

    async def submit(self, wanted: submissions.Submission) -> answers.Answer: ...

    async def find(self, uid: int, tokens: Collection[str], *, since: float) -> dict[str, str]: ...

    def trace(self, token: str) -> answers.Answer | None:
        """What is known of an earlier submission; None when there was none."""

    def running(self, token: str) -> bool: ...

    def rebooted(self) -> bool:
        """Whether traces, and the last writes to the journal, may have been lost with the power."""

    def keep_doubt(self, tokens: Collection[str]) -> None:
        """Whoever comes next must know, too, that these may have been submitted before the host's boot."""

    def clear(self, token: str) -> None: ...


class RealSlurm:
    """sbatch, squeue and sacct of this host."""

    def __init__(self, spool: spools.Spool, *, slurm_conf: str, seconds: float) -> None:
        self.spool, self.slurm_conf, self.seconds = spool, slurm_conf, seconds

    async def submit(self, wanted: submissions.Submission) -> answers.Answer:
        return await submissions.submit(wanted, spool=self.spool, seconds=self.seconds)

    async def find(self, uid: int, tokens: Collection[str], *, since: float) -> dict[str, str]:
        return await tokensearch.find(uid, tokens, since=since, slurm_conf=self.slurm_conf)

    def trace(self, token: str) -> answers.Answer | None:
        return self.spool.read(token, code=None) if self.spool.started(token) else None

    def running(self, token: str) -> bool:
        return self.spool.running(token)

    def rebooted(self) -> bool:
        return not self.spool.same_boot

    def keep_doubt(self, tokens: Collection[str]) -> None:
        self.spool.keep_doubt(tokens)

    def clear(self, token: str) -> None:
        self.spool.clear(token)
