"""`penstock validate` without click: parses plain calls, and runs the check.

Importing click takes 10 to 25 ms, a third of the whole call. Calls that are not plain (--help, an unknown
option, a missing value) are left to click, so error messages and help are only in validate.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock import errors
from penstock.cli import report
from penstock.views import scripts

STYLES = ("text", "json")
FLAGS = {"--lint": "lint", "--quiet": "quiet", "-q": "quiet", "--no-summary": "no_summary"}
VALUES = {"--format": "style", "--site": "site_file", "--slurm": "release"}
SEVERAL = {"--silence": "silence", "--with": "accepted"}


class Request(msgspec.Struct, frozen=True):
    files: tuple[str, ...]
    style: str = "text"
    site_file: str | None = None
    lint: bool = False
    silence: tuple[str, ...] = ()
    release: str | None = None
    quiet: bool = False
    no_summary: bool = False
    accepted: tuple[str, ...] = ()
    """Arguments that sbatch has accepted."""


def validate(words: Sequence[str]) -> int | None:
    request = parse(words)
    return None if request is None else run(request)


def parse(words: Sequence[str]) -> Request | None:
    given: dict[str, object] = {}
    several: dict[str, tuple[str, ...]] = {}
    files: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            files.extend(rest)
        elif word == "-" or not word.startswith("-"):
            files.append(word)
        elif word in FLAGS:
            given[FLAGS[word]] = True
        else:
            name, equals, value = word.partition("=")
            value = value if equals else next(rest, "")
            if not value:
                return None
            if name in SEVERAL:
                several[SEVERAL[name]] = (*several.get(SEVERAL[name], ()), value)
            elif name in VALUES:
                given[VALUES[name]] = value
            else:
                return None
    if not files or given.get("style", "text") not in STYLES:
        return None
    return Request(files=tuple(files), **several, **given)  # type: ignore[arg-type]  # names and types are those of FLAGS, VALUES and SEVERAL


def run(request: Request) -> int:
    """Check and print; returns 0 if all are accepted, 1 if any is rejected, 2 if any could not be read."""
    checker = scripts.Checker.load(
        site_file=request.site_file,
        release=request.release,
        lint=request.lint,
        silenced=request.silence,
        accepted=request.accepted,
    )
    unread: list[errors.UsageError] = []

    def miss(error: errors.UsageError) -> None:
        unread.append(error)
        report.complain(error.message)

    verdicts = [(source, checker.check(source)) for source in scripts.sources(request.files, miss)]
    if request.style == "json":
        report.emit(msgspec.json.encode([result for _, result in verdicts]) + b"\n")
    else:
        summary = not (request.quiet or request.no_summary) and (bool(verdicts) or not unread)
        report.print_text(verdicts, quiet=request.quiet, summary=summary)
    return 2 if unread else 0 if all(result.ok for _, result in verdicts) else 1
