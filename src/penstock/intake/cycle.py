"""One pass of the intake: a finite function of the folder, the claims and Slurm's answers. Nothing blocks.

Exactly once, by this order: a file is claimed by a rename that reaches the disk; the intent is in the journal
before sbatch starts; sbatch carries the token into Slurm. After an interruption at any point the submission
is found again by its token, and never repeated blindly.
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
from collections.abc import Sequence

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
    settings,
    slurmaccess,
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
AHEAD = 3  # files claimed for each that is submitted at once


class Clerk:
    """The intake's state, rebuilt from journal, .work/ and spool after a crash."""

    def __init__(
        self,
        site: settings.Settings,
        journal: entries.Journal,
        slurm: slurmaccess.SlurmAccess,
        clock: clock.Clock,
        *,
        instance: str,
    ) -> None:
        self.site, self.journal, self.slurm, self.clock = site, journal, slurm, clock
        self.instance = instance
        self.judge = verdicts.Judge(site)
        self.tracker = completeness.Tracker(site.settle_seconds)
        self.turns: fairqueue.Turns[completeness.Watched] = fairqueue.Turns(AHEAD * site.in_flight_per_user)
        self.queues: dict[int, deque[completeness.Watched]] = {}
        self.claims: dict[str, Claim] = {}
        self.submissions: dict[asyncio.Task[answers.Answer], Claim] = {}
        self.questions: dict[asyncio.Task[dict[str, str]], list[Claim]] = {}
        self.held: dict[int, float] = {}
        self.refusals: Counter[int] = Counter()
        self.unknown_owners, self.missing_homes = hosttrouble.GracePeriod(), hosttrouble.GracePeriod()
        self.recovered = False
        self._claim_error: OSError | None = None
        self._synced = False
        """Whether every claim has reached the disk, also those of an earlier process."""
        self._emptied: set[str] = set()
        """Users' folders that files were claimed from since the last sync."""
        self._broken: frozenset[str] = frozenset()
        self._unread: frozenset[str] = frozenset()
        """Tokens of files that could not be read after a reboot: the journal may lack their last entry."""
        self.folders: tuple[listing.Subfolder, ...] = ()
        """Folders in submit/ that are ignored because the site has no user folders."""
        self._stray_since: float | None = None
        """When a claim last failed, which may be done all the same, or an earlier one could not be read."""

    def collect(self) -> None:
        """Record every answer that has arrived; needs no NAS."""
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
            self.missing_homes.clear(claim.uid)
        if answer.kind == "accepted":
            self._note(claim, entries.ACCEPTED, words=answer.words, job_id=answer.job_id)
            log.info("%r of uid %d is job %s", claim.name, claim.uid, answer.job_id)
            claim.phase, claim.tries, claim.due = "file", 0, 0.0
            self.refusals.pop(claim.uid, None)
            self.refusals.pop(EVERYBODY, None)
        elif answer.passing and not self.missing_homes.has_expired(claim.uid, now):
            self._note(claim, entries.WAITING, words=answer.words)
            claim.phase = "check"
            self._delay(claim, f"waiting: {answer.words}", now)
        elif answer.kind == "rejected":
            log.info("%r of uid %d is refused by Slurm: %s", claim.name, claim.uid, answer.words)
            lines, refused = answer.words.split("\n"), "Slurm refused it"
            details = [f"  {line}" for line in lines]
            self._refuse(claim, f"{refused}: {lines[-1]}", refused, verdicts.AGAIN, details)
        elif answer.kind == "later":
            self._note(claim, entries.WAITING, words=answer.words)
            claim.phase, claim.words = "check", f"waiting: {answer.words}"
            self._hold(EVERYBODY if answer.away else claim.uid, now)
        else:
            log.warning(
                "%r of uid %d: unknown whether it was submitted: %s", claim.name, claim.uid, answer.words
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
                claim.words = f"waiting: cannot find out whether it was submitted: {error}"
                claim.missed = math.inf  # accounting that has just come back may lag behind
                claim.retry_later(now, least=ASK_AGAIN)
            elif claim.asked - claim.missed >= self.site.uncertain_seconds:
                claim.phase, claim.tries = "check", 0
            else:
                if claim.missed > now:
                    claim.missed, claim.tries = now, 0
                claim.retry_later(now, least=ASK_AGAIN)

    def _hold(self, uid: int, now: float) -> None:
        """Submit no file of this user for a while that grows."""
        self.refusals[uid] += 1
        self.held[uid] = now + min(2.0 ** min(self.refusals[uid], 10), claims.LONGEST_WAIT)

    def _is_held(self, uid: int, now: float) -> bool:
        return max(self.held.get(uid, 0.0), self.held.get(EVERYBODY, 0.0)) > now

    def recover(self, folder: dropfolder.Folder) -> None:
        """Take up the claims and journal entries of an earlier process."""
        left, broken = claims.existing(folder)
        for claim in left:
            self._take_up(claim)
        self._unread = frozenset(broken if self.slurm.rebooted() else ())
        self.slurm.keep_doubt([*(claim.token for claim in left if claim.phase == "trace"), *broken])
        for entry in self.journal.open():
            if entry.token not in self.claims and entry.token not in broken:
                self._close(entry)
        for token, words in broken.items():
            log.warning("the claimed file %s of an earlier run cannot be read: %s", token, words)
            self._stray_since = self.clock.now()
        self.recovered = True
        if left:
            log.info("recovered %d claimed files of an earlier run", len(left))
        for other, count in claims.other_instances(folder, self.instance).items():
            log.warning("intake %s has %d claimed files; if it is gone, --adopt %s", other, count, other)

    def _take_up(self, claim: Claim) -> None:
        claim.entry = self.journal.get(claim.token)
        self.claims[claim.token] = claim
        state = claim.entry.state if claim.entry else ""
        if state in (entries.ACCEPTED, entries.PROCESSED, entries.REFUSED, entries.FAILED):
            claim.phase = "file"
        elif state == entries.WAITING and not (self.slurm.rebooted() or claim.token in self._unread):
            claim.phase = "check"  # otherwise the journal may have lost a later try
        elif not state and not claim.token.startswith(self.instance):  # its spool is on another host
            claim.phase = "ask"

    def _close(self, entry: entries.Entry) -> None:
        """The file is no longer in .work/: moved just before the crash, or removed by somebody."""
        ended = entries.PROCESSED if entry.job_id else entries.FAILED
        words = entry.words or ("" if entry.job_id else "it was removed before it was submitted")
        self.journal.put(msgspec.structs.replace(entry, state=ended, words=words))
        self.slurm.clear(entry.token)

    def scan(self, folder: dropfolder.Folder, moved: frozenset[str]) -> None:
        """List submit/ and queue the files that are complete."""
        now = self.clock.now()
        if self._stray_since is not None:
            self._find_stray_claims(folder, since=self._stray_since, now=now)
        found = listing.take(folder, hidden=filenames.is_hidden, user_folders=self.site.user_folders)
        for name, words in found.broken.items():
            if name not in self._broken:
                log.warning("%r cannot be read: %s", name, words)
        self._broken = frozenset(found.broken)
        self.folders = () if self.site.user_folders else found.folders
        self.tracker.observe(found, now=now, moved=moved, full=dropfolder.is_full(folder))
        self.queues = {}
        for watched in self.tracker.ready(now):
            self.queues.setdefault(watched.info.uid, deque()).append(watched)

    def _find_stray_claims(self, folder: dropfolder.Folder, *, since: float, now: float) -> None:
        """A server may complete a rename after the client gave up; unreadable files may be readable again."""
        left, broken = claims.existing(folder)
        for claim in left:
            if claim.token not in self.claims:
                log.warning("%r of uid %d was claimed although its rename failed", claim.name, claim.uid)
                self._take_up(claim)
                self._synced = False
        if now - since >= claims.LONGEST_WAIT and not broken:
            self._stray_since = None

    def advance(self, folder: dropfolder.Folder) -> None:
        """Do the next action of every claim that is due, and claim more files."""
        now = self.clock.now()
        for claim in [claim for claim in self.claims.values() if claim.due <= now]:
            if claim.phase == "trace":
                self._trace(claim, now)
            if claim.phase == "file":
                self._file(folder, claim, now)
        self._ask(now)
        self._claim_error = None
        chosen = self._next(now)
        if len(chosen) < self._slots() and self._claim(folder, now):
            chosen = self._next(now)
        if chosen and not self._synced:
            self._sync(folder)
        for claim in chosen:
            try:
                self._check(folder, claim, now)
            except OSError as error:
                self._delay(claim, f"waiting: it cannot be read: {error.strerror}", now)
        if self._claim_error is not None:
            raise self._claim_error

    def _sync(self, folder: dropfolder.Folder) -> None:
        """Sync the directories, so that a power cut does not undo a claim."""
        os.fsync(folder.work)
        os.fsync(folder.submit)
        for name in self._emptied:
            with contextlib.suppress(errors.NasUnavailable), dropfolder.inside(folder.submit, name) as inner:
                os.fsync(inner)  # unless it was removed or replaced by a link since
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
        """One question at a time for each user with uncertain submissions."""
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
        """Claimed files that are due, as many as can be submitted now."""
        busy = self._in_phase("busy")
        chosen: list[Claim] = []
        for claim in self.claims.values():
            due = claim.phase == "check" and claim.due <= now and not self._is_held(claim.uid, now)
            if due and busy[claim.uid] < self.site.in_flight_per_user and len(chosen) < self._slots():
                busy[claim.uid] += 1
                chosen.append(claim)
        return chosen

    def _claim(self, folder: dropfolder.Folder, now: float) -> bool:
        """Claim a few files ahead, users in turn: one sync serves all, and a new user is served soon."""
        busy = self._in_phase("check")
        queues = {uid: queue for uid, queue in self.queues.items() if not self._is_held(uid, now)}
        taken, failure = False, None
        for watched in itertools.islice(self.turns.order(queues, busy), AHEAD * self.site.in_flight):
            try:
                claim = self._take(folder, watched)
            except OSError as error:  # it may concern one file or all: try the others first
                failure, self._stray_since = error, now
                continue
            if claim is not None:
                busy[claim.uid] += 1
                taken = True
        self._claim_error = None if taken else failure
        return taken

    def _take(self, folder: dropfolder.Folder, watched: completeness.Watched) -> Claim | None:
        suspect = watched.cut_short and not watched.complete
        self._synced = False
        self._emptied |= {watched.info.folder} - {""}
        claim = claims.take(folder, watched.info, instance=self.instance, cut_short=suspect)
        self.tracker.forget(watched.key)
        if claim is not None:
            self.claims[claim.token] = claim
            claims.drop_marker(folder, watched.info)
        return claim

    def _in_phase(self, phase: claims.Phase) -> Counter[int]:
        """Claims in this phase, counted by user."""
        return Counter(claim.uid for claim in self.claims.values() if claim.phase == phase)

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
            claim.stamp, claim.due = verdict.stamp, now + self.site.settle_seconds
            claim.words = "still being written"
        elif isinstance(verdict, inspection.Refusal):
            if verdict.temporary and not self.unknown_owners.has_expired(verdict.uid, now):
                self._delay(claim, f"waiting: {verdict.reason}", now)
                return
            claim.uid, claim.mode = verdict.uid, verdict.mode
            log.warning("%r of uid %d is refused: %s", claim.name, claim.uid, verdict.reason)
            self._refuse(claim, verdict.reason, verdict.reason, verdict.advice, verdict.details)
        else:
            claim.uid, claim.mode, claim.words = verdict.submission.uid, verdict.mode, ""
            self.unknown_owners.clear(claim.uid)
            self._note(claim, entries.SUBMITTING, sha256=verdict.sha256)
            claim.phase = "busy"
            self.submissions[asyncio.ensure_future(self.slurm.submit(verdict.submission))] = claim

    def _refuse(self, claim: Claim, words: str, reason: str, advice: str, details: Sequence[str]) -> None:
        letter = messages.refusal(claim.name, claim.token, reason, advice, details)
        self._note(claim, entries.REFUSED, words=words, letter=letter)
        claim.phase, claim.tries, claim.due = "file", 0, 0.0

    def _file(self, folder: dropfolder.Folder, claim: Claim, now: float) -> None:
        entry = claim.entry
        if entry is None:
            raise AssertionError("every verdict is in the journal")
        try:
            if entry.job_id:
                destinations.processed(self.journal, folder, entry, claim.work_name)
            else:
                destinations.failed(self.journal, folder, entry, claim.work_name, mode=claim.mode)
        except OSError as error:
            self._delay(claim, f"waiting: it cannot be moved: {error.strerror}", now)
            return
        self.claims.pop(claim.token)
        self.slurm.clear(claim.token)

    def _delay(self, claim: Claim, words: str, now: float) -> None:
        claim.words = words
        claim.retry_later(now)
        log.warning("%r of uid %d: %s", claim.name, claim.uid, words)

    def _note(self, claim: Claim, state: str, **fields: str) -> None:
        """Write the state to the journal; on return it survives a crash of the intake."""
        entry = claim.entry or entries.Entry(claim.token, os.fsencode(claim.name), claim.uid, state)
        claim.entry = self.journal.put(msgspec.structs.replace(entry, state=state, uid=claim.uid, **fields))
