"""Fills one job's results folder, as the job's owner: the only place where users' files are touched.

Every step can be done again: nothing is ever taken away that exists nowhere else, and `checksums.txt`,
written last, says that the folder is whole. A disk that is full or away is not an end: the summary says what
is missing, and the collector comes back.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import msgspec

from penstock import wellknown
from penstock.model import attempts, jobs
from penstock.nas import atomic
from penstock.results import checksums, filecopy, identity, outputs, previousattempts, settings
from penstock.results import summary as summarising

STDOUT, STDERR, OUTPUTS = "stdout.log", "stderr.log", "outputs"
_UNFINISHED = re.compile(r"\.(?:job_summary\.json|job_summary\.txt|checksums\.txt|std(?:out|err)\.log)\..{8}")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be gathered, and where."""

    attempt: attempts.Attempt
    record: jobs.JobRecord | None
    user: str
    folder: str
    """Of this attempt, not under its final name yet."""
    results: str
    previous: str = ""
    """The folder of earlier attempts that this one takes the place of; empty when there is none."""
    previous_number: int = 0
    overtaken: bool = False
    """A later attempt has begun, and writes to the same output files."""
    is_last: bool = False
    """If something is missing after this try, too, it is given up."""
    limits: settings.Limits = settings.Limits()


class Gathered(msgspec.Struct, frozen=True):
    """How far it came."""

    summary: str
    """job_summary.json, as text."""
    complete: bool
    problem: str = ""
    says_so: bool = True
    """Whether the folder has a summary of this: without one nobody would know it again."""


def gather(plan: Plan) -> Gathered:
    """All of it; a trouble that may pass is told, not raised."""
    os.umask(0o022)
    folder, notes = Path(plan.folder), outputs.Notes()
    mark = folder / wellknown.OUTPUTS_COPIED
    done = identity.look(folder)
    if done.complete and done.attempt_id == summarising.attempt_id(plan.attempt):
        mark.unlink(missing_ok=True)
        return Gathered(summary=(folder / summarising.JSON_NAME).read_text(), complete=True)
    found = summarising.summarise(plan.attempt, plan.record, user=plan.user, now=time.time())
    if plan.record is None:
        notes.say("Slurm did not tell how the job ended")
    try:
        _tidy(folder)
        if plan.previous:
            previousattempts.link_earlier(Path(plan.previous), folder, number=plan.previous_number)
        _take_logs(plan, folder, notes)
        measured = _take_outputs(plan, folder, notes)
        found = msgspec.structs.replace(found, outputs=measured, notes=notes.all(), complete=True)
        _write_summary(folder, found)
        atomic.write(folder / checksums.NAME, checksums.of_folder(folder))
        mark.unlink(missing_ok=True)
    except (OSError, RecursionError) as error:
        return _incomplete(folder, msgspec.structs.replace(found, given_up=plan.is_last), notes, error)
    return Gathered(summary=summarising.as_json(found).decode(), complete=True)


def _tidy(folder: Path) -> None:
    """Remove files that were being written when somebody stopped us.

    Our own files lie at the top of an attempt; further down such names are the owner's.
    """
    for within, _, names in os.walk(folder):
        place = Path(within)
        at_top = place == folder or (place.parent == folder and place.name != OUTPUTS)
        for name in names:
            if name.startswith(filecopy.UNFINISHED) or (at_top and _UNFINISHED.fullmatch(name)):
                Path(within, name).unlink()


def _incomplete(folder: Path, found: summarising.Summary, notes: outputs.Notes, error: Exception) -> Gathered:
    problem, says_so = getattr(error, "strerror", None) or str(error), True
    found = msgspec.structs.replace(found, complete=False, problem=problem, notes=notes.all())
    try:
        (folder / checksums.NAME).unlink(missing_ok=True)
        _write_summary(folder, found)
    except OSError as also:
        problem, says_so = f"{problem}; nor could the summary be written: {also.strerror}", False
    text = summarising.as_json(found).decode()
    return Gathered(summary=text, complete=False, problem=problem, says_so=says_so)


def _write_summary(folder: Path, found: summarising.Summary) -> None:
    atomic.write(folder / summarising.JSON_NAME, summarising.as_json(found))
    atomic.write(folder / summarising.TEXT_NAME, summarising.as_text(found).encode())


# -- output files ----------------------------------------------------------------------------------


def _take_logs(plan: Plan, folder: Path, notes: outputs.Notes) -> None:
    """Copied, never linked: a later attempt empties the original."""
    attempt = plan.attempt
    _take_log(attempt.stdout, folder / STDOUT, plan, notes)
    merged = attempt.stderr == attempt.stdout
    _take_log(b"/dev/null" if merged else attempt.stderr, folder / STDERR, plan, notes)
    if plan.overtaken:
        notes.say("a later attempt began before this one was collected: its output may be among this one's")


def _take_log(source: bytes, target: Path, plan: Plan, notes: outputs.Notes) -> None:
    if plan.overtaken and filecopy.is_there(target):
        return  # from an earlier try, when the original was more this attempt's than it is now
    if source in (b"/dev/null", b""):
        atomic.write(target, b"")
        return
    try:
        left_out = filecopy.copy(source, target, at_most=plan.limits.log_bytes)
        if left_out:
            notes.say(f"{target.name}: the last {left_out} bytes are only in {os.fsdecode(source)}")
    except (FileNotFoundError, PermissionError, NotADirectoryError, filecopy.NotAFile) as error:
        why = getattr(error, "strerror", None) or "no regular file"
        notes.say(f"{target.name}: {source.decode(errors='replace')} could not be read: {why}")
        atomic.write(target, b"")


# -- outputs ---------------------------------------------------------------------------------------


def _take_outputs(plan: Plan, folder: Path, notes: outputs.Notes) -> summarising.Outputs:
    attempt, target, copied = plan.attempt, folder / OUTPUTS, False
    if attempt.output_dir:
        copied = outputs.take_folder(Path(attempt.output_dir), target, notes)
    if attempt.outputs and attempt.workdir_is_shared:
        _take_named(plan, target, notes)
    elif attempt.outputs and not copied:
        notes.say(
            "#K8S_OUTPUTS: the container ended before its files were copied out, or had nowhere to put them"
        )
    for pattern in attempt.outputs_left:
        notes.say(
            f"#K8S_OUTPUTS={pattern}: left where it is, for all tasks of the array work in that folder: name"
            " the task's own files with %a (as in part-%a.csv) or %j, or write them to $PENSTOCK_OUTPUT_DIR"
        )
    if not attempt.output_dir and not attempt.unlaunched:
        notes.say(f"PENSTOCK_OUTPUT_DIR was not set: {_why_no_folder(attempt)}")
    target.mkdir(exist_ok=True)
    for line in outputs.oddities(target):
        notes.add(line)
    return outputs.measure(target, attempt.outputs)


def _why_no_folder(attempt: attempts.Attempt) -> str:
    if attempt.own_entrypoint:
        return "the image ran its own entrypoint"
    return "the collector had never run" if attempt.uncollected else "pods do not see the results"


def _take_named(plan: Plan, target: Path, notes: outputs.Notes) -> None:
    finder = outputs.Finder(
        workdir=Path(os.fsdecode(plan.attempt.workdir)),
        target=target,
        limits=plan.limits,
        notes=notes,
        avoid=Path(plan.results),
    )
    for pattern in plan.attempt.outputs:
        finder.collect(pattern)
    if finder.left_out:
        notes.say(
            f"{finder.left_out} files that #K8S_OUTPUTS names are beyond the site's limits and were left"
        )
