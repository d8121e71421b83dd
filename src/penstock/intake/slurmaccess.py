"""The intake's interface to Slurm: submits with a token, and finds the job of a token again."""

from __future__ import annotations

from collections.abc import Collection

from penstock.slurm import answers, spools, submissions, tokensearch


class SlurmAccess:
    def __init__(self, spool: spools.Spool, *, slurm_conf: str, seconds: float) -> None:
        self.spool, self.slurm_conf, self.seconds = spool, slurm_conf, seconds

    async def submit(self, wanted: submissions.Submission) -> answers.Answer:
        return await submissions.submit(wanted, spool=self.spool, seconds=self.seconds)

    async def find(self, uid: int, tokens: Collection[str], *, since: float) -> dict[str, str]:
        return await tokensearch.find(uid, tokens, since=since, slurm_conf=self.slurm_conf)

    def trace(self, token: str) -> answers.Answer | None:
        """The answer to an earlier submission, as far as known; None if there was none."""
        return self.spool.read(token, code=None) if self.spool.started(token) else None

    def running(self, token: str) -> bool:
        return self.spool.running(token)

    def rebooted(self) -> bool:
        """Whether the host has rebooted: traces and the last journal writes may be lost."""
        return not self.spool.same_boot

    def keep_doubt(self, tokens: Collection[str]) -> None:
        """Record, for later starts too, that these may have been submitted before the reboot."""
        self.spool.keep_doubt(tokens)

    def clear(self, token: str) -> None:
        self.spool.clear(token)
