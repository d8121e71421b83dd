"""Runs pytest, then reruns each failed test once, alone.

One flaky test among thousands must not fail the run. A test that passes alone is listed with its first
output, and the run is green; it still shows a race to be fixed, in Penstock or in the test. A test that fails
twice fails the run, and so do too many failures.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from scripts import failures

ROOT = Path(__file__).resolve().parent.parent
AT_MOST = 12
"""Maximum of failures to rerun."""
AGAIN_SECONDS = 900.0
"""For one test, including the start and the end of its lab."""
TIDY_SECONDS = 120.0
"""For taking a lab down after that timeout."""
STRICT = "--strict"
TESTS_FAILED = 1
"""pytest's exit code; others mean that it did not finish."""


@dataclass(frozen=True)
class Failure:
    """A failed test: full path, node id and output."""

    test: str
    name: str
    said: str
    is_a_test: bool


def is_strict(arguments: Sequence[str]) -> bool:
    """Whether reruns are disabled."""
    return STRICT in arguments or os.environ.get("STRICT", "") not in ("", "0")


def run(arguments: Sequence[str], *, environment: Mapping[str, str], strict: bool = False) -> int:
    """pytest's exit code, or 0 if all failures pass alone. `arguments` are for the first run only."""
    code, failed = once(arguments, environment)
    if code != TESTS_FAILED or strict or not failed:
        return code
    reason = why_not_again(failed)
    if reason:
        heading(f"failed; no rerun: {reason}")
        return code
    again = [each for each in failed if not passes_alone(each, environment)]
    tell("passed only when run again", [each for each in failed if each not in again])
    tell("failed twice", again)
    heading(f"{'FAILED' if again else 'passed'}: of {len(failed)} rerun, {len(again)} failed twice")
    return code if again else 0


def why_not_again(failed: Sequence[Failure]) -> str:
    """Why the failures are not rerun; empty if they are."""
    if not all(each.is_a_test for each in failed):
        return "a test file cannot be collected"
    return f"{len(failed)} failures, at most {AT_MOST} are" if len(failed) > AT_MOST else ""


def once(
    arguments: Sequence[str], environment: Mapping[str, str], *, seconds: float | None = None
) -> tuple[int, list[Failure]]:
    """The exit code and the failed tests."""
    with tempfile.TemporaryDirectory(prefix="penstock-failures-") as folder:
        notes = Path(folder) / "failures"
        argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", failures.__name__, *arguments]
        code = wait(argv, {**environment, failures.FILE: str(notes)}, seconds)
        return code, list(read(notes))


def read(notes: Path) -> Iterator[Failure]:
    """Failures in order; a test's own failure and those of its fixtures are joined."""
    lines = notes.read_text(encoding="utf-8").split("\n") if notes.exists() else []
    found: dict[str, list[dict[str, str]]] = {}
    for line in filter(None, lines):
        note = json.loads(line)
        found.setdefault(note["test"], []).append(note)
    for test, said in found.items():
        yield Failure(
            test=test,
            name=said[0]["name"],
            said="\n".join(note["said"] for note in said),
            is_a_test=all(note["when"] != "collect" for note in said),
        )


def passes_alone(failure: Failure, environment: Mapping[str, str]) -> bool:
    """Rerun in a new process, hence with a new lab if it uses one."""
    heading(f"again, alone: {failure.name}")
    code, _ = once([failure.test], environment, seconds=AGAIN_SECONDS)
    return code == 0


def wait(argv: Sequence[str], environment: Mapping[str, str], seconds: float | None) -> int:
    """The exit code of a program that also gets our signals; after one we exit with 128 plus its number."""
    told: list[int] = []

    def hear(number: int, _: FrameType | None) -> None:
        told.append(number)
        if number != signal.SIGINT:  # a terminal sends it to both
            process.send_signal(number)

    process = subprocess.Popen(argv, env=dict(environment), cwd=ROOT)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, hear if before[number] is not signal.SIG_IGN else signal.SIG_IGN)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = interrupt(process)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if told:
        sys.exit(128 + told[0])
    return code


def interrupt(process: subprocess.Popen[bytes]) -> int:
    """Stop tests that take too long, with their labs; never returns success."""
    process.send_signal(signal.SIGINT)
    try:
        return process.wait(TIDY_SECONDS) or TESTS_FAILED
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait() or TESTS_FAILED


def tell(what: str, found: Sequence[Failure]) -> None:
    if not found:
        return
    heading(what)
    for failure in found:
        print(f"{failure.name}\n\n{failure.said}\n", flush=True)


def heading(text: str) -> None:
    print(f"\n{f' penstock: {text} ':=^100}", flush=True)
