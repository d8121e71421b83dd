"""The error text beside a refused file, and the README of the drop folder."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.intake import filenames
from penstock.sbatch.diagnostics import Diagnostic

README = """\
Jobs by copying a file
======================

submit/      copy a job file here; it is submitted as soon as it has stopped changing
processed/   <date>/<name>.<JOB_ID>: submitted as this job
failed/      <date>/<name>: refused; <name>.error.txt beside it says why and what to do

The results of a job that has ended are in results/<JOB_ID>/ on this NAS.

A job file is a script for sbatch, for instance first.sh:

    #!/bin/bash
    #SBATCH --time=10
    echo "hello from $(hostname)"

Your job runs as you. Only regular files of your own are accepted: no links, no folders, nothing
that others can write. If your program copies slowly or in parts, copy to a name that begins with
a dot and rename it, or create an empty <name>.done when the copy is complete.
`penstock inbox` shows where each of your files is.
"""


def refusal(name: str, token: str, reason: str, advice: str, details: Sequence[str] = ()) -> str:
    lines = [f"{filenames.shown(name)} was not submitted: {reason}.", ""]
    if details:
        lines += [*details, ""]
    lines += [f"What to do: {advice}", "", f"Reference: {token}", ""]
    return "\n".join(lines)


def findings(data: bytes, diagnostics: Sequence[Diagnostic]) -> list[str]:
    """Diagnostics as text, errors first, each with its line of the script."""
    ordered = sorted(diagnostics, key=lambda one: (one.severity != "error", one.line))
    source = data.decode(errors="replace").split("\n")
    lines: list[str] = []
    for one in ordered:
        where = f"line {one.line}: " if one.line else ""
        lines.append(f"  {one.severity}: {where}{filenames.shown(one.message)}")
        if 0 < one.line <= len(source) and source[one.line - 1].strip():
            lines.append(f"      {filenames.shown(source[one.line - 1][:160])}")
        if one.hint:
            lines.append(f"      hint: {filenames.shown(one.hint)}")
    return lines
