"""Findings in scripts as they are printed, in the manner of a good compiler.

`file:line:column: error[code]: message`, the source line, a caret under the place, and what to do about it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from penstock import errors, wording
from penstock.sbatch.diagnostics import Diagnostic
from penstock.views.scripts import Result, Source

_COLOURS = {"error": 31, "warning": 33, "info": 36}
_GREEN = 32
_WIDEST = 160
Verdict = tuple[Source, Result]


def print_text(
    verdicts: Sequence[Verdict], *, quiet: bool = False, summary: bool = True, to_stderr: bool = False
) -> None:
    """All findings, then one line that sums up; on standard error where the output is for a program."""
    stream = sys.stderr if to_stderr else sys.stdout
    colour = stream is not None and stream.isatty() and "NO_COLOR" not in os.environ
    said = [
        _render(source, found, colour=colour)
        for source, result in verdicts
        for found in result.diagnostics
        if not quiet or found.severity == "error"
    ]
    if summary:
        said.append(_summary(verdicts, colour=colour))
    text = "".join(f"{part}\n" for part in said)
    if not to_stderr:
        emit(text)
    elif sys.stderr is not None:
        sys.stderr.write(text)


def emit(said: str | bytes) -> None:
    """To standard output, all of it now: text as the terminal takes it, bytes as they are.

    One that is closed, or cannot take it, is an error in words. A reader who has gone is not: see main.py.
    """
    if sys.stdout is None:
        raise errors.UsageError("cannot print: standard output is closed")
    try:
        if isinstance(said, bytes):
            sys.stdout.buffer.write(said)
        else:
            encoding = sys.stdout.encoding or "utf-8"
            sys.stdout.write(said.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python tries again at its end
        raise errors.UsageError(f"cannot print: {os.strerror(error.errno or 0).lower()}") from error


def complain(text: str) -> None:
    """One line to standard error, if anybody listens there."""
    if sys.stderr is not None:
        sys.stderr.write(f"penstock: {text}\n")


def _render(source: Source, found: Diagnostic, *, colour: bool) -> str:
    where = f"{source.shown}:{found.line}:{found.column}" if found.line else source.shown
    label = _paint(f"{found.severity}[{found.code}]", _COLOURS[found.severity], colour)
    lines = [f"{_paint(wording.printable(where), None, colour)}: {label}: {wording.printable(found.message)}"]
    if found.line:
        lines.extend(_excerpt(source.data, found))
    if found.hint:
        lines.append(f"  {_paint('hint:', _GREEN, colour)} {wording.printable(found.hint)}")
    return "\n".join(lines)


def _excerpt(data: bytes, found: Diagnostic) -> list[str]:
    """The source line, cut to what fits around the place, and the caret under it."""
    line = _line(data, found.line)
    if not line.strip():
        return []
    start = max(0, found.column - 100) if len(line) > _WIDEST else 0
    shown = wording.printable(line[start : start + _WIDEST])
    indent = "".join("\t" if char == "\t" else " " for char in line[start : found.column - 1])
    return [f"  {shown}", f"  {indent}^"]


def _line(data: bytes, number: int) -> str:
    position = 0
    for _ in range(number - 1):
        position = data.find(b"\n", position) + 1
        if not position:
            return ""
    end = data.find(b"\n", position)
    raw = data[position : end if end >= 0 else len(data)][: 64 * 1024]
    return raw.decode("utf-8", "surrogateescape").rstrip("\r")


def _summary(verdicts: Sequence[Verdict], *, colour: bool) -> str:
    rejected = sum(not result.ok for _, result in verdicts)
    found = [diagnostic.severity for _, result in verdicts for diagnostic in result.diagnostics]
    parts = [wording.many(len(verdicts) - rejected, "script") + " accepted"]
    if rejected:
        parts.append(_paint(f"{rejected} rejected", _COLOURS["error"], colour))
    parts += [wording.many(found.count(kind), kind) for kind in ("error", "warning") if kind in found]
    return ", ".join(parts)


def _paint(text: str, colour: int | None, enabled: bool) -> str:
    if not enabled:
        return text
    return f"\x1b[1m{text}\x1b[0m" if colour is None else f"\x1b[{colour};1m{text}\x1b[0m"
