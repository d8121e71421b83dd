"""What the intake does at each look: a finite function over what lies in the folder, what it has claimed, and
what Slurm has answered since. Nothing here waits.

The order that makes it exactly once: a file is claimed by a rename that reaches the disk; the intent is in
the journal before sbatch is started; sbatch carries the token into Slurm. Whatever is cut off after that is
found again by its token and never submitted blindly.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import os
import time
from collections import Counter, deque

import msgspec

from penstock import clock, errors
from penstock.intake import (
    claims,
    completeness,
    destinations,
    fairqueue,
    filenames,
    hosttrouble,
    inspection,
    messages,
    protocols,
    settings,
    verdicts,
)
from penstock.journal import entries
from penstock.nas import dropfolder, listing
from penstock.slurm import answers

log = logging.getLogger(__name__)
Claim = claims.Claim
EVERYBODY = -1
_MONTH = 30 * 86400.0
ASK_AGAIN = 1.0
AHEAD = 3  # times as many files are claimed as are submitted at once


class Clerk:
    """One intake's memory, rebuilt from journal, .work/ and spool after a crash."""

    def __init__(
        self,
        site: settings.Settings,
        journal: entries.Journal,
        slurm: protocols.Slurm,
        clock: clock.Clock,
        *,
        instance: str,
    ) -> None:
        self.site, self.journal, self.slurm, self.clock = site, journal, slurm, clock
        self.instance = instance
        self.judge = verdicts.Judge(site)
        self.tracker = completeness.Tracker(site.settle_seconds)
        self.turns: fairqueue.Turns[completeness.Watched] = fairqueue.Turns(AHEAD * site.in_flight_per_user)
        self.lines: dict[int, deque[completeness.Watched]] = {}
        self.claims: dict[str, Claim] = {}
        self.submissions: dict[asyncio.Task[answers.Answer], Claim] = {}
        self.questions: dict[asyncio.Task[dict[str, str]], list[Claim]] = {}
        self.held: dict[int, float] = {}
        self.refusals: Counter[int] = Counter()
        self.nameless, self.homeless = hosttrouble.Patience(), hosttrouble.Patience()
        self.recovered = False
        self._trouble: OSError | None = None
        self._synced = False
        """Whether every claim has reached the disk, also those of an earlier process."""
        self._emptied: set[str] = set()
        """Users' folders that claims since then were taken from."""
        self._broken: frozenset[str] = frozenset()
        self._doubted: frozenset[str] = frozenset()
        """Tokens of files that could not be looked at after a boot: the journal may lack their last entry."""
        self.folders: tuple[listing.Left, ...] = ()
        """In submit/, where the site has none for its users: nobody looks into them."""
        self._astray: float | None = None
        """When a claim last failed, unless that is long ago: its rename may have been done all the same. Or
        when a file of an earlier run could not be looked at.
        """

    # -- what Slurm has answered -----------------------------------------------------------------------------
    def collect(self) -> None:
        """Write down every answer that has come; needs no NAS."""
        for task in [task for task in self.submissions if task.done()]:
            claim = self.submissions.pop(task)
            error = task.exception()
            if isinstance(error, OSError):
                self._answered(
                    claim, answers.Answer("later", words=f"sbatch cannot be run: {error.strerror}")
                )
            else:
                self._answered(claim, task.result())
        for question in [task for task in self.questions if task.done()]:
            self._found(self.questions.pop(question), question)

    def _answered(self, claim: Claim, answer: answers.Answer) -> None:
        now = self.clock.now()
        if answer.kind != "unknown" and not answer.passing:
            self.homeless.restore(claim.uid)
        if answer.kind == "accepted":
            self._note(claim, entries.ACCEPTED, words=answer.words, job_id=answer.job_id)
            log.info("%r of uid %d is job %s", claim.name, claim.uid, answer.job_id)
            claim.phase, claim.tries, claim.due = "file", 0, 0.0
            self.refusals.pop(claim.uid, None)
            self.refusals.pop(EVERYBODY, None)
        elif answer.passing and not self.homeless.is_over(claim.uid, now):
            self._note(claim, entries.WAITING, words=answer.words)
            claim.phase = "check"
            self._delay(claim, f"waits: {answer.words}", now)
        elif answer.kind == "rejected":
            log.info("%r of uid %d is refused by Slurm: %s", claim.name, claim.uid, answer.words)
            lines = answer.words.split("\n")
            details = [f"  {line}" for line in lines]
            letter = messages.refusal(claim.name, claim.token, "Slurm refused it", verdicts.AGAIN, details)
            self._refuse(claim, f"Slurm refused it: {lines[-1]}", letter)
        elif answer.kind == "later":
            self._note(claim, entries.WAITING, words=answer.words)
            claim.phase, claim.words = "check", f"waits: {answer.words}"
            self._hold(EVERYBODY if answer.away else claim.uid, now)
        else:
            log.warning(
                "%r of uid %d: not known whether it was submitted: %s", claim.name, claim.uid, answer.words
            )
            claim.phase, claim.missed, claim.tries, claim.due = "ask", math.inf, 0, now

    def _found(self, asked: list[Claim], question: asyncio.Task[dict[str, str]]) -> None:
        now = self.clock.now()
        error = question.exception()
        if error is not None and not isinstance(error, errors.SlurmError):
            raise error
        found = {} if error is not None else question.result()
        for claim in asked:
            claim.phase = "ask"
            if claim.token in found:
                self._answered(claim, answers.Answer("accepted", job_id=found[claim.token]))
            elif error is not None:
                claim.words = f"waits: Slurm cannot be asked whether it has it: {error}"
                claim.missed = math.inf  # an accounting that is back may not have been told yet
                claim.later(now, least=ASK_AGAIN)
            elif claim.asked - claim.missed >= self.site.uncertain_seconds:
                claim.phase, claim.tries = "check", 0
            else:
                if claim.missed > now:
                    claim.missed, claim.tries = now, 0
                claim.later(now, least=ASK_AGAIN)

    def _hold(self, uid: int, now: float) -> None:
        """Leave this user's files alone for a while that grows."""
        self.refusals[uid] += 1
        self.held[uid] = now + min(2.0 ** min(self.refusals[uid], 10), claims.LONGEST_WAIT)

    def _is_held(self, uid: int, now: float) -> bool:
        return max(self.held.get(uid, 0.0), self.held.get(EVERYBODY, 0.0)) > now

    # -- after a start ---------------------------------------------------------------------------------------
    def recover(self, folder: dropfolder.Folder) -> None:
        """Understand what an earlier process has left, here and in the journal."""
        left, broken = claims.left(folder)
        for claim in left:
            self._take_up(claim)
        self._doubted = frozenset(broken if self.slurm.rebooted() else ())
        self.slurm.keep_doubt([*(claim.token for claim in left if claim.phase == "trace"), *broken])
        for entry in self.journal.open():
            if entry.token not in self.claims and entry.token not in broken:
                self._close(entry)
        for token, words in broken.items():
            log.warning("a file of an earlier run, %s, cannot be looked at: %s", token, words)
            self._astray = self.clock.now()
        self.recovered = True
        if left:
            log.info("%d files of an earlier run are taken up again", len(left))
        for stranger, count in claims.strangers(folder, self.instance).items():
            log.warning("%d files are in the hands of intake %s: --adopt it if it is gone", count, stranger)

    def _take_up(self, claim: Claim) -> None:
        claim.entry = self.journal.get(claim.token)
        self.claims[claim.token] = claim
        state = claim.entry.state if claim.entry else ""
        if state in (entries.ACCEPTED, entries.PROCESSED, entries.REFUSED, entries.FAILED):
            claim.phase = "file"
        elif state == entries.WAITING and not (self.slurm.rebooted() or claim.token in self._doubted):
            claim.phase = "check"  # else a later try may be forgotten
        elif not state and not claim.token.startswith(self.instance):  # another host has its traces
            claim.phase = "ask"

    def _close(self, entry: entries.Entry) -> None:
        """The file is not in .work/: it was moved just before the end, or somebody has removed it."""
        ended = entries.PROCESSED if entry.job_id else entries.FAILED
        words = entry.words or ("" if entry.job_id else "it was removed before it was submitted")
        self.journal.put(msgspec.structs.replace(entry, state=ended, words=words))
        self.slurm.clear(entry.token)

    # -- one look at the folder ------------------------------------------------------------------------------
    def scan(self, folder: dropfolder.Folder, moved: frozenset[str]) -> None:
        """See what has come and what has settled."""
        now = self.clock.now()
        if self._astray is not None:
            self._find_astray(folder, since=self._astray, now=now)
        found = listing.take(folder, hidden=filenames.is_hidden, user_folders=self.site.user_folders)
        for name, words in found.broken.items():
            if name not in self._broken:
                log.warning("%r cannot be looked at: %s", name, words)
        self._broken = frozenset(found.broken)
        self.folders = () if self.site.user_folders else found.folders
        self.tracker.observe(found, now=now, moved=moved, full=dropfolder.is_full(folder))
        self.lines = {}
        for watched in self.tracker.ready(now):
            self.lines.setdefault(watched.sight.uid, deque()).append(watched)

    def _find_astray(self, folder: dropfolder.Folder, *, since: float, now: float) -> None:
        """A server may do a rename whose answer nobody waited for, also a little later; and what could not be
        looked at may be there again.
        """
        left, broken = claims.left(folder)
        for claim in left:
            if claim.token not in self.claims:
                log.warning("%r of uid %d is in .work/, and is taken up", claim.name, claim.uid)
                self._take_up(claim)
                self._synced = False
        if now - since >= claims.LONGEST_WAIT and not broken:
            self._astray = None

    def advance(self, folder: dropfolder.Folder) -> None:
        """Move on everything that can be moved on now."""
        now = self.clock.now()
        for claim in [claim for claim in self.claims.values() if claim.due <= now]:
            if claim.phase == "trace":
                self._trace(claim, now)
            if claim.phase == "file":
                self._file(folder, claim, now)
        self._ask(now)
        self._trouble = None
        chosen = self._next(now)
        if len(chosen) < self._slots() and self._claim(folder, now):
            chosen = self._next(now)
        if chosen and not self._synced:
            self._sync(folder)
        for claim in chosen:
            try:
                self._check(folder, claim, now)
            except OSError as error:
                self._delay(claim, f"waits: it cannot be read: {error.strerror}", now)
        if self._trouble is not None:
            raise self._trouble

    def _sync(self, folder: dropfolder.Folder) -> None:
        """No power cut brings a file back to where it was taken from."""
        os.fsync(folder.work)
        os.fsync(folder.submit)
        for name in self._emptied:
            with contextlib.suppress(errors.NasUnavailable), dropfolder.inside(folder.submit, name) as inner:
                os.fsync(inner)  # unless it was removed, or made a link, since
        self._emptied, self._synced = set(), True

    def _trace(self, claim: Claim, now: float) -> None:
        running = self.slurm.running(claim.token)
        answer = self.slurm.trace(claim.token)
        if running and (answer is None or answer.kind != "accepted"):  # --wait runs as long as the job
            claim.due = now + self.site.poll_seconds
        elif answer is None:
            claim.phase = "check"
        else:
            self._answered(claim, answer)

    def _ask(self, now: float) -> None:
        """One question for each user with doubtful files, one at a time."""
        asking = {claim.uid for group in self.questions.values() for claim in group}
        groups: dict[int, list[Claim]] = {}
        for claim in self.claims.values():
            if claim.phase == "ask" and claim.due <= now and claim.uid not in asking:
                groups.setdefault(claim.uid, []).append(claim)
        for uid, group in groups.items():
            since = min(claim.entry.began if claim.entry else time.time() - _MONTH for claim in group)
            question = self.slurm.find(uid, {claim.token for claim in group}, since=since)
            self.questions[asyncio.ensure_future(question)] = group
            for claim in group:
                claim.phase, claim.asked = "busy", now

    def _next(self, now: float) -> list[Claim]:
        """Claimed files whose time has come, as many as can be submitted now."""
        busy = self._in_phase("busy")
        chosen: list[Claim] = []
        for claim in self.claims.values():
            due = claim.phase == "check" and claim.due <= now and not self._is_held(claim.uid, now)
            if due and busy[claim.uid] < self.site.in_flight_per_user and len(chosen) < self._slots():
                busy[claim.uid] += 1
                chosen.append(claim)
        return chosen

    def _claim(self, folder: dropfolder.Folder, now: float) -> bool:
        """Claim a few more files than can be submitted now, users in turn: their renames reach the disk
        together. Nobody has more than a few claimed, so whoever comes next is served next.
        """
        busy = self._in_phase("check")
        lines = {uid: line for uid, line in self.lines.items() if not self._is_held(uid, now)}
        taken, trouble = False, None
        for watched in itertools.islice(self.turns.order(lines, busy), AHEAD * self.site.in_flight):
            try:
                claim = self._take(folder, watched)
            except OSError as error:  # of this file, or of all: others are tried before it is said
                trouble, self._astray = error, now
                continue
            if claim is not None:
                busy[claim.uid] += 1
                taken = True
        self._trouble = None if taken else trouble
        return taken

    def _take(self, folder: dropfolder.Folder, watched: completeness.Watched) -> Claim | None:
        suspect = watched.cut_short and not watched.complete
        self._synced = False
        self._emptied |= {watched.sight.folder} - {""}
        claim = claims.take(folder, watched.sight, instance=self.instance, cut_short=suspect)
        self.tracker.forget(watched.key)
        if claim is not None:
            self.claims[claim.token] = claim
            claims.drop_marker(folder, watched.sight)
        return claim

    def _in_phase(self, *phases: claims.Phase) -> Counter[int]:
        """How many claims each user has there."""
        return Counter(claim.uid for claim in self.claims.values() if claim.phase in phases)

    def _slots(self) -> int:
        return self.site.in_flight - len(self.submissions)

    def _check(self, folder: dropfolder.Folder, claim: Claim, now: float) -> None:
        verdict = self.judge.judge(folder, claim)
        if verdict is None:
            log.info("%r of uid %d was removed before it was submitted", claim.name, claim.uid)
            self.claims.pop(claim.token)
            if claim.entry is not None:
                self._close(claim.entry)
        elif isinstance(verdict, inspection.Unsettled):
            claim.sign, claim.due = verdict.sign, now + self.site.settle_seconds
            claim.words = "still being written"
        elif isinstance(verdict, verdicts.Refused) and self._may_pass(verdict, now):
            self._delay(claim, f"waits: {verdict.words}", now)
        elif isinstance(verdict, verdicts.Refused):
            claim.uid, claim.mode = verdict.uid, verdict.mode
            log.warning("%r of uid %d is refused: %s", claim.name, claim.uid, verdict.words)
            self._refuse(claim, verdict.words, verdict.letter)
        else:
            claim.uid, claim.mode, claim.words = verdict.submission.uid, verdict.mode, ""
            self.nameless.restore(claim.uid)
            self._note(claim, entries.SUBMITTING, sha256=verdict.sha256)
            claim.phase = "busy"
            self.submissions[asyncio.ensure_future(self.slurm.submit(verdict.submission))] = claim

    def _may_pass(self, verdict: verdicts.Refused, now: float) -> bool:
        return verdict.passing and not self.nameless.is_over(verdict.uid, now)

    def _refuse(self, claim: Claim, words: str, letter: str) -> None:
        self._note(claim, entries.REFUSED, words=words, letter=letter)
        claim.phase, claim.tries, claim.due = "file", 0, 0.0

    def _file(self, folder: dropfolder.Folder, claim: Claim, now: float) -> None:
        entry = claim.entry
        if entry is None:
            raise AssertionError("a verdict is always in the journal")
        try:
            if entry.job_id:
                destinations.processed(self.journal, folder, entry, claim.work_name)
            else:
                destinations.failed(self.journal, folder, entry, claim.work_name, mode=claim.mode)
        except OSError as error:
            self._delay(claim, f"waits to be moved: {error.strerror}", now)
            return
        self.claims.pop(claim.token)
        self.slurm.clear(claim.token)

    def _delay(self, claim: Claim, words: str, now: float) -> None:
        """One file's trouble is nobody else's."""
        claim.words = words
        claim.later(now)
        log.warning("%r of uid %d %s", claim.name, claim.uid, words)

    def _note(self, claim: Claim, state: str, **fields: str) -> None:
        """Write it to the journal; on return it survives us."""
        entry = claim.entry or entries.Entry(claim.token, os.fsencode(claim.name), claim.uid, state)
        claim.entry = self.journal.put(msgspec.structs.replace(entry, state=state, uid=claim.uid, **fields))
