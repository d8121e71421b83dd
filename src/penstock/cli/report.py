"""Prints diagnostics of scripts like a compiler: `file:line:column: error[code]: message`, the source line, a
caret, and a hint.
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
    stream = sys.stderr if to_stderr else sys.stdout
    colour = stream is not None and stream.isatty() and "NO_COLOR" not in os.environ
    parts = [
        _render(source, found, colour=colour)
        for source, result in verdicts
        for found in result.diagnostics
        if not quiet or found.severity == "error"
    ]
    if summary:
        parts.append(_summary(verdicts, colour=colour))
    text = "".join(f"{part}\n" for part in parts)
    if not to_stderr:
        emit(text)
    elif sys.stderr is not None:
        sys.stderr.write(text)


def emit(content: str | bytes) -> None:
    """Write to standard output and flush: text in the terminal's encoding, bytes unchanged.

    Raises UsageError if it is closed or cannot be written, and BrokenPipeError, which main.py handles.
    """
    if sys.stdout is None:
        raise errors.UsageError("cannot print: standard output is closed")
    try:
        if isinstance(content, bytes):
            sys.stdout.buffer.write(content)
        else:
            encoding = sys.stdout.encoding or "utf-8"
            sys.stdout.write(content.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again at exit
        raise errors.UsageError(f"cannot print: {os.strerror(error.errno or 0).lower()}") from error


def complain(text: str) -> None:
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
    """The source line, truncated around the column, and the caret."""
    line = _line(data, found.line)
    if not line.strip():
        return []
    start = max(0, found.column - 100) if len(line) > _WIDEST else 0
    shown = wording.printable(line[start : start + _WIDEST])
    indent = "".join("\t" if char == "\t" else " " for char in line[start : found.column - 1])
    return [f"  {shown}", f"  {indent}^"]


def _line(data: bytes, number: int) -> str:
    lines = data.split(b"\n", number)
    raw = lines[number - 1][: 64 * 1024] if number <= len(lines) else b""
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
