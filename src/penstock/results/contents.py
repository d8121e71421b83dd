"""Fills a job's results folder, as the job's owner: the only place where users' files are touched.

Every step can be repeated: nothing is removed that exists nowhere else, and `checksums.txt`, written last,
marks the folder as complete. If a disk is full or unavailable, the summary says what is missing, and the
collector tries again.
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
    attempt: attempts.Attempt
    record: jobs.JobRecord | None
    user: str
    folder: str
    """Of this attempt, before it gets its final name."""
    results: str
    previous: str = ""
    """The folder of earlier attempts, which this one replaces; empty if there is none."""
    previous_number: int = 0
    overtaken: bool = False
    """A later attempt has started, and writes to the same output files."""
    is_last: bool = False
    """The last try: what is still missing after it stays missing."""
    limits: settings.Limits = settings.Limits()


class Gathered(msgspec.Struct, frozen=True):
    summary: str
    """The text of job_summary.json."""
    complete: bool
    problem: str = ""
    has_summary: bool = True
    """Whether the folder contains the summary, by which it is recognised later."""


def gather(plan: Plan) -> Gathered:
    """Fill the folder; temporary problems are returned, not raised."""
    os.umask(0o022)
    folder, notes = Path(plan.folder), outputs.Notes()
    mark = folder / wellknown.OUTPUTS_COPIED
    done = identity.read(folder)
    if done.complete and done.attempt_id == summarising.attempt_id(plan.attempt):
        mark.unlink(missing_ok=True)
        return Gathered(summary=(folder / summarising.JSON_NAME).read_text(), complete=True)
    found = summarising.summarise(plan.attempt, plan.record, user=plan.user, now=time.time())
    if plan.record is None:
        notes.add_general("Slurm did not report how the job ended")
    try:
        _remove_unfinished(folder)
        if plan.previous:
            previousattempts.link_earlier(Path(plan.previous), folder, number=plan.previous_number)
        _copy_logs(plan, folder, notes)
        measured = _collect_outputs(plan, folder, notes)
        found = msgspec.structs.replace(found, outputs=measured, notes=notes.all(), complete=True)
        _write_summary(folder, found)
        atomic.write(folder / checksums.NAME, checksums.of_folder(folder))
        mark.unlink(missing_ok=True)
    except (OSError, RecursionError) as error:
        return _incomplete(folder, msgspec.structs.replace(found, given_up=plan.is_last), notes, error)
    return Gathered(summary=summarising.as_json(found).decode(), complete=True)


def _remove_unfinished(folder: Path) -> None:
    """Remove temporary files of an interrupted try; below an attempt's top such names are the owner's."""
    for within, _, names in os.walk(folder):
        place = Path(within)
        at_top = place == folder or (place.parent == folder and place.name != OUTPUTS)
        for name in names:
            if name.startswith(filecopy.UNFINISHED) or (at_top and _UNFINISHED.fullmatch(name)):
                Path(within, name).unlink()


def _incomplete(folder: Path, found: summarising.Summary, notes: outputs.Notes, error: Exception) -> Gathered:
    problem, has_summary = getattr(error, "strerror", None) or str(error), True
    found = msgspec.structs.replace(found, complete=False, problem=problem, notes=notes.all())
    try:
        (folder / checksums.NAME).unlink(missing_ok=True)
        _write_summary(folder, found)
    except OSError as also:
        problem, has_summary = f"{problem}; the summary could not be written: {also.strerror}", False
    text = summarising.as_json(found).decode()
    return Gathered(summary=text, complete=False, problem=problem, has_summary=has_summary)


def _write_summary(folder: Path, found: summarising.Summary) -> None:
    atomic.write(folder / summarising.JSON_NAME, summarising.as_json(found))
    atomic.write(folder / summarising.TEXT_NAME, summarising.as_text(found).encode())


def _copy_logs(plan: Plan, folder: Path, notes: outputs.Notes) -> None:
    """Copied, never linked: a later attempt truncates the original."""
    attempt = plan.attempt
    _copy_log(attempt.stdout, folder / STDOUT, plan, notes)
    merged = attempt.stderr == attempt.stdout
    _copy_log(b"/dev/null" if merged else attempt.stderr, folder / STDERR, plan, notes)
    if plan.overtaken:
        notes.add_general(
            "a later attempt started before this one was collected: stdout.log and stderr.log may contain its"
            " output"
        )


def _copy_log(source: bytes, target: Path, plan: Plan, notes: outputs.Notes) -> None:
    if plan.overtaken and filecopy.exists(target):
        return  # an earlier try copied it before the later attempt wrote as much
    if source in (b"/dev/null", b""):
        atomic.write(target, b"")
        return
    try:
        left_out = filecopy.copy(source, target, at_most=plan.limits.log_bytes)
        if left_out:
            notes.add_general(f"{target.name}: the last {left_out} bytes are only in {os.fsdecode(source)}")
    except (FileNotFoundError, PermissionError, NotADirectoryError, filecopy.NotAFile) as error:
        why = getattr(error, "strerror", None) or "not a regular file"
        notes.add_general(f"{target.name}: {source.decode(errors='replace')} could not be read: {why}")
        atomic.write(target, b"")


def _collect_outputs(plan: Plan, folder: Path, notes: outputs.Notes) -> summarising.Outputs:
    attempt, target, copied = plan.attempt, folder / OUTPUTS, False
    if attempt.output_dir:
        copied = outputs.take_folder(Path(attempt.output_dir), target, notes)
    if attempt.outputs and attempt.workdir_is_shared:
        _collect_patterns(plan, target, notes)
    elif attempt.outputs and not copied:
        notes.add_general(
            "#K8S_OUTPUTS: not collected: the container ended before its files were copied, or had no folder"
            " for them"
        )
    for pattern in attempt.outputs_left:
        notes.add_general(
            f"#K8S_OUTPUTS={pattern}: not collected: all tasks of the array share that folder; name the"
            " task's own files with %a (as in part-%a.csv) or %j, or write them to $PENSTOCK_OUTPUT_DIR"
        )
    if not attempt.output_dir and not attempt.unlaunched:
        notes.add_general(f"PENSTOCK_OUTPUT_DIR was not set: {_why_no_folder(attempt)}")
    target.mkdir(exist_ok=True)
    for line in outputs.without_checksum(target):
        notes.add(line)
    return outputs.measure(target, attempt.outputs)


def _why_no_folder(attempt: attempts.Attempt) -> str:
    if attempt.own_entrypoint:
        return "the image ran its own entrypoint"
    return "the collector had never run" if attempt.uncollected else "pods do not see the results folder"


def _collect_patterns(plan: Plan, target: Path, notes: outputs.Notes) -> None:
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
        notes.add_general(
            f"{finder.left_out} files named by #K8S_OUTPUTS exceed the site's limits and were not collected"
        )
